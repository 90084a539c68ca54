"""Coverage-guided fuzzing, by hand, with atheris installed: tests/fuzz/run_atheris.py readers tests/fuzz/corpus/readers

Arguments after the target go to libFuzzer, such as -max_total_time=60. A crash is written to a file: put that into the
corpus, and `test_fuzz.py` keeps it fixed.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["contradpp.data", "contradpp.dpp.files", "contradpp.learn.checkpoints"]):
    from targets import load, read

if __name__ == "__main__":
    target = {"readers": read, "models": load}[sys.argv.pop(1)]

    def one_input(data: bytes) -> None:
        target(data)

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
