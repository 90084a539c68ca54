"""What a release is made of: locks with hashes, versions that agree, workflows that only call the Makefile."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = ["requirements.lock", "requirements-core.lock", "requirements-release.lock"]
PIN = re.compile(r"^([\w.-]+)==([^\s;\\]+)(.*(?:\n .*)*)", re.MULTILINE)


def pins(lock: str) -> dict[str, tuple[str, str]]:
    """The version of every package, and the rest of its entry."""
    return {name: (version, rest) for name, version, rest in PIN.findall((ROOT / lock).read_text(encoding="utf-8"))}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_version_has_hashes(lock):
    found = pins(lock)
    assert len(found) == len(re.findall(r"^\S", (ROOT / lock).read_text(encoding="utf-8"), re.MULTILINE)) > 30
    assert [name for name, (_, rest) in found.items() if "--hash=sha256:" not in rest] == []


def test_the_locks_agree_and_are_in_the_ranges():
    everything, core = pins("requirements.lock"), pins("requirements-core.lock")
    assert {name: everything[name][0] for name in core} == {name: version for name, (version, _) in core.items()}
    extras = PROJECT["optional-dependencies"]
    for needed, lock in [
        (PROJECT["dependencies"] + extras["report"] + extras["serve"], core),
        (extras["dev"], everything),
    ]:
        for requirement in map(Requirement, needed):
            assert lock[requirement.name][0] in requirement.specifier, requirement


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert re.search(rf"^## {re.escape(version)} \(", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def steps(workflow: Path) -> list[str]:
    return re.findall(r"- run: (.*)", workflow.read_text(encoding="utf-8"))


def test_workflows_call_targets_that_are_there():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    found = [step for workflow in workflows for step in steps(workflow)]
    assert len(workflows) == 2
    assert len(found) > 6
    for step in found:
        words = re.sub(r"\$\{\{.*'(\w+)' \|\| '(\w+)' \}\}", r"\1 \2", step).partition("#")[0].split()
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, step
        else:
            assert step.startswith("mv dist/"), step


def test_actions_are_named_by_commit():
    """A tag can be moved to other code."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert [name for name in used if not re.search(r"@[0-9a-f]{40}$", name)] == []


def test_the_versions_of_python_are_the_same_everywhere():
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={declared[0]}"
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert json.loads(re.search(r"python: (\[.*\])", workflow)[1]) == declared
    assert f"for v in {' '.join(declared)};" in (ROOT / "Makefile").read_text(encoding="utf-8")


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_the_health_check_of_the_image_asks_at_the_port_that_is_set():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    _, *words = json.loads(re.search(r"HEALTHCHECK.*\\\n\s*CMD (\[.*\])", text)[1])

    def status(port: int) -> int:
        env = os.environ | {"CONTRADPP_PORT": str(port), "no_proxy": "*"}
        return subprocess.run([sys.executable, *words], env=env, capture_output=True, check=False).returncode

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert status(server.server_port) == 0
        server.shutdown()
    assert status(server.server_port) != 0
