"""What is shipped: a wheel and a source archive that work apart from the checkout, and the recipe of an image."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*words: object, **more: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=more.get("PYTHONPATH", ROOT), env=env, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel and the source archive."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "hatchling", "build", "--directory", folder)
    return folder


def test_the_wheel_has_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"contradpp"}  # no experiments, no tests
    package = ROOT / "src"
    ours = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    ours = {name for name in ours if "__pycache__" not in name and not name.endswith((".nbi", ".nbc"))}
    assert ours <= set(names)  # page, styles, the shop's catalogue and the mark of types included
    assert not [name for name in names if name.endswith((".pyc", ".safetensors", ".nbi", ".nbc"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_works_on_its_own(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import contradpp as cd, sys; assert cd.__file__.startswith(sys.argv[1]), cd.__file__;"
        "from contradpp.serve.app import create_app, ServiceSettings; create_app(ServiceSettings(model='m'));"
        "print(len(cd.datasets.load('grocer', n_baskets=20, random_state=0)))"
    )
    assert run("-c", code, tmp_path, PYTHONPATH=str(tmp_path)).strip() == "20"
    assert "Start here" in run("-m", "contradpp", "--help", PYTHONPATH=str(tmp_path))


def test_metadata_says_what_it_is(built):
    metadata = pytest.importorskip("packaging.metadata")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        found = metadata.Metadata.from_email(archive.read(name), validate=True)
    assert found.name == "contradpp"
    assert found.description_content_type == "text/markdown"
    assert "Programming Language :: Python :: 3.11" in found.classifiers
    assert {"serve", "ray", "tune"} <= set(found.provides_extra)


def test_the_source_archive_is_whole_and_holds_no_data(built):
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    assert {"pyproject.toml", "README.md", "LICENSE", "src/contradpp/__init__.py", "tests/contract.py"} <= set(names)
    assert not [name for name in names if name.endswith((".safetensors", ".parquet", ".pyc"))]
    assert source.stat().st_size < 8_000_000


# -- The image -------------------------------------------------------------------------------------------

WORDS = {
    "FROM",
    "WORKDIR",
    "COPY",
    "RUN",
    "ENV",
    "USER",
    "EXPOSE",
    "HEALTHCHECK",
    "STOPSIGNAL",
    "ENTRYPOINT",
    "CMD",
    "ARG",
}


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def test_the_recipe_of_the_image_is_sound():
    """There is no Docker here: words, files, user, health check and commands are looked at one by one."""
    steps = instructions()
    assert {word for word, _ in steps} <= WORDS
    for word, rest in steps:
        if word == "COPY" and "--from" not in rest:
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources), rest
        if word in ("ENTRYPOINT", "CMD"):
            assert rest.startswith("["), "a shell would not pass signals on"
    order = [word for word, _ in steps]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert dict(steps)["USER"] != "root"
    assert "/healthz" in dict(steps)["HEALTHCHECK"]
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert dict(steps)["ARG"].startswith(f"BASE=python:{python}-")
    assert [rest.split()[0] for word, rest in steps if word == "FROM"] == ["${BASE}", "${BASE}"]
    ignored = (ROOT / ".dockerignore").read_text().split()
    for word, rest in steps:
        if word == "COPY" and "--from" not in rest:
            assert all(f"!{source.removeprefix('./')}" in ignored for source in rest.split()[:-1])


def test_the_commands_of_the_image_exist():
    from contradpp.cli.main import COMMANDS

    told = " ".join(rest for word, rest in instructions() if word in ("RUN", "ENTRYPOINT"))
    used = set(re.findall(r"\bcontradpp(?:\", \"| )([a-z]+)", told))
    assert used == {"warm", "serve"}
    assert used <= set(COMMANDS)
