"""Results survive a kill, and every target ends in its files; the commands as a person calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest
from click.testing import CliRunner

import contradpp as cd
from contradpp.errors import ContradppError
from experiments import commands, run
from experiments.__main__ import COMMANDS, main
from experiments.protocol import SINGLE, Protocol, Task, tasks_of
from experiments.run import Store, write_file

TASK = Task("fit", "uk", "mle", 0)


# -- The store -------------------------------------------------------------------------------------------


def test_what_is_put_can_be_got(tmp_path):
    store = Store(tmp_path)
    assert store.get(TASK) is None
    store.put(TASK, {"seconds": 1.0})
    assert store.get(TASK) == {"seconds": 1.0}
    assert store.version(TASK) == cd.__version__
    entry = json.loads(store.path(TASK).read_text())
    assert entry["parameters"]["estimator"]["n_components"] == 100


def test_other_parameters_mean_no_result(tmp_path):
    store = Store(tmp_path)
    store.put(TASK, {"seconds": 1.0})
    changed = replace(TASK, overrides=(("max_iter", 7),))
    assert store.path(changed) == store.path(TASK)
    assert store.get(changed) is None
    store.put(changed, {"seconds": 2.0})
    assert store.get(TASK) is None


@pytest.mark.parametrize("text", ["", '{"version": "0', "[]", "{}"])
def test_a_damaged_file_means_no_result(tmp_path, text):
    store = Store(tmp_path)
    write_file(store.path(TASK), text)
    assert store.get(TASK) is None


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(ContradppError, match="disk full"):
        Store(tmp_path).put(TASK, {})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, faked, monkeypatch):
    protocol, done = Protocol(quick=True), []

    def kill(task, seconds):
        done.append(task)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.reproduce(["table-uk"], tmp_path, protocol, watch=kill)
    assert len(faked) == 1
    everything = tasks_of("table-uk", protocol)
    assert len(Store(tmp_path).missing(["table-uk"], protocol)) == len(everything) - 1
    run.reproduce(["table-uk"], tmp_path, protocol)
    assert sorted(map(str, faked)) == sorted(map(str, everything))  # each once
    faked.clear()
    run.reproduce(["table-uk"], tmp_path, protocol)
    assert faked == []
    run.reproduce(["table-uk"], tmp_path, Protocol(trials=2))
    assert {task.trial for task in faked} == {1}


def test_several_processes_find_what_one_does(tmp_path):
    tasks = [Task("toy", "toy", method, trial) for method in ("mle", "explicit") for trial in (0, 1)]
    finished = []
    run.compute(tasks, Store(tmp_path / "one"), n_jobs=1)
    several = Store(tmp_path / "several")
    run.compute(tasks, several, n_jobs=1, processes=2, watch=lambda task, _: finished.append(task))
    assert sorted(map(str, finished)) == sorted(map(str, tasks))
    for task in tasks:
        one, other = Store(tmp_path / "one").get(task), several.get(task)
        assert one["probabilities"] == other["probabilities"]
        assert one["history"]["validation"] == other["history"]["validation"]


def test_what_fails_in_another_process_is_told(tmp_path):
    good, bad = Task("toy", "toy", "mle", 0), Task("toy", "toy", "no-such-objective", 0)
    store = Store(tmp_path)
    with pytest.raises(ContradppError, match="no-such-objective"):
        run.compute([good, bad], store, n_jobs=1, processes=2)
    assert store.get(bad) is None


# -- Every target from the fits to the files -----------------------------------------------------------


def test_every_target_runs_and_writes_its_files(tmp_path, tiny):
    """The whole, with real fits on tiny data."""
    protocol = Protocol(quick=True, overrides={"max_iter": 2})
    sections = run.reproduce(["all", "table-amazon/feeding"], tmp_path, protocol, n_jobs=1)
    assert [section.target for section in sections] == [*SINGLE, "table-amazon/feeding"]
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for section in sections:
        text = (tmp_path / f"{section.slug}.md").read_text(encoding="utf-8")
        assert text.strip() in index
        content = json.loads((tmp_path / f"{section.slug}.json").read_text(encoding="utf-8"))
        assert content["target"] == section.target
        assert content["results"]
        assert section.plots
        for figure in content["figures"]:
            assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")
            assert figure in text
        assert "nan" not in text.lower()
    assert "Three claims" in index
    for key in ("Popularity alone reaches MPR", "one LowRank kernel", "from the paper's start"):
        assert key in index
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob("*.partial.png"))


def test_the_papers_settings_have_the_papers_methods(tmp_path, faked):
    store, protocol = Store(tmp_path), Protocol("paper", trials=2)
    for target in SINGLE:
        run.compute(store.missing([target], protocol), store)
        section = run.build(target, protocol, store)
        assert section.findings
        assert "exact" not in [row[0] for table in section.tables for row in table.rows]


def test_published_numbers_stand_beside_ours_and_the_index_has_all(tmp_path, faked):
    expected = {
        "figure1": ["at most 1/2", r"P(2\|1)"],
        "table-runtimes": ["27.59 ± 2.20", "1 : 3.2 : 8.6 : 33"],
        "table-uk": ["80.07", "+3.75 ± 0.16", "+0.4147 ± 0.0134", "0.5730", "4,070 items"],
        "table-belgian": ["does not reach the published 89.00", "not as trained", "less than the published +9.64"],
    }
    for target in reversed(expected):
        run.reproduce([target], tmp_path, Protocol(trials=2))
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    pages = {target: (tmp_path / f"{target}.md").read_text(encoding="utf-8") for target in expected}
    for target, texts in expected.items():
        assert [text for text in texts if text not in pages[target]] == []
    places = [index.index(page.strip()) for page in pages.values()]
    assert places == sorted(places)  # in the order of the paper


def test_results_of_other_parameters_are_not_mixed_in(tmp_path, faked):
    store = Store(tmp_path)
    run.reproduce(["figure1"], tmp_path, Protocol(quick=True))
    assert store.missing(["figure1"], Protocol(quick=True)) == []
    assert len(store.missing(["figure1"], Protocol(quick=True, overrides={"alpha": 2.0}))) == 18


# -- The commands --------------------------------------------------------------------------------------


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words, code=0: called(words, code)


def called(words, code):
    done = CliRunner().invoke(main, words)
    assert done.exit_code == code, done.output
    return done


def test_tables_are_printed_and_written(faked, tmp_path, call):
    words = ("reproduce", "table-uk", "figure1", "--quick")
    shown = call(*words)
    for text in ("UK retail", "80.07", "index.md"):
        assert text in shown.stdout
    assert f"[{len(faked)}/{len(faked)}]" in shown.stderr
    assert (tmp_path / "reproduction" / "index.md").is_file()
    assert (tmp_path / "reproduction" / "figures" / "figure1-bars.png").is_file()
    faked.clear()
    (tmp_path / "reproduction" / "figure1.md").unlink()
    (content, _) = json.loads(call(*words, "--json").stdout)
    assert (tmp_path / "reproduction" / "figure1.md").is_file()
    assert content["target"] == "figure1"
    assert faked == []


def test_options_are_passed_on(faked, call):
    call("reproduce", "table-runtimes", "--trials", "2", "--settings", "paper", "-o", "other")
    assert {(task.trial, task.settings) for task in faked} == {(0, "paper"), (1, "paper")}
    assert "15 of 15 results of 'table-runtimes'" in call("reproduce", "table-runtimes", "--no-run", code=1).stderr


def test_some_rows_of_the_benchmark(tmp_path, call):
    words = ("benchmark", "--quick", "--data", "grocer", "--models", "popularity,itemknn")
    shown = call(*words)
    assert "[2/2]" in shown.stderr
    assert "ItemKNN, BM25" in shown.stdout
    rows = pd.read_parquet(tmp_path / "reproduction" / "benchmark.parquet")
    assert set(rows.model) == {"popularity", "itemknn"}
    shown = call(*words, "--tasks", "halves", "--no-run")
    assert shown.stderr == ""
    assert "recall@10" in shown.stdout
    assert "p@10" not in shown.stdout
    shown = call("benchmark", "--quick", "--data", "uk", "--models", "popularity", "--no-run", code=1)
    assert "1 of 1 results of 'benchmark' are missing" in shown.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "table-mars"], "table-amazon/feeding"),
        (["reproduce"], "TARGET"),
        (["reproduce", "figure1", "--trials", "0"], "--trials"),
        (["reproduce", "figure1", "--settings", "best"], "--settings"),
        (["benchmark", "--data", "mars"], "there are: "),
        (["benchmark", "--models", "magic"], "there are: "),
        (["benchmark", "--tasks", "none"], "there are: "),
    ],
)
def test_wrong_usage_exits_with_two(faked, tmp_path, call, words, message):
    assert message in call(*words, code=2).stderr
    assert not list(tmp_path.iterdir())


def test_the_bar_counts_every_task(faked, call, monkeypatch):
    """On a terminal the bar takes the place of the lines."""
    monkeypatch.setattr(commands.Console, "is_terminal", property(lambda self: True))
    assert "[1/5]" not in call("reproduce", "table-runtimes", "--quick").stderr
    assert len(faked) == 5


def test_the_overview_imports_no_command():
    code = "import sys; from experiments.__main__ import COMMANDS, main; main(['--help'], standalone_mode=False); "
    code += "assert not {'pandas', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=run.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert name in done.stdout
        assert main.get_command(None, name).name == name


def test_a_missing_package_names_the_extra(call, monkeypatch):
    monkeypatch.setitem(COMMANDS, "reproduce", ("no_such_module", ""))
    assert "pip install -e '.[experiments,dev]'" in call("reproduce", "figure1", code=1).stderr
