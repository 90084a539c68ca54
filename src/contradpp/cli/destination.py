"""Files to write: checked before the work begins, replaced only when it has succeeded."""

from __future__ import annotations

import json
import secrets
import tempfile
from pathlib import Path
from typing import Any

import click

from contradpp.dpp.persist import write_atomically
from contradpp.errors import ModelFileError
from contradpp.learn.checkpoint import KIND


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, with the reason and the way out."""
    folder = path.parent
    if path.is_dir():
        raise click.ClickException(f"{path} is a folder: name a file in it, such as {path / 'model.safetensors'}")
    if not folder.is_dir():
        raise click.ClickException(f"there is no folder {folder}: create it (mkdir -p {folder}) or name another")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise click.ClickException(
            f"cannot write into {folder.absolute()}: {error.strerror}. Choose a folder where you may write"
        ) from error


def is_nothing(path: Path) -> bool:
    """Whether nothing is lost where this file is replaced."""
    return not path.exists() or path.stat().st_size == 0


def is_model(path: Path) -> bool:
    """Whether the header of a file says that it is a model of ours, and not a checkpoint."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            return bool(json.loads((file.metadata() or {})["contradpp"])["model"] != KIND)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return False


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_atomically(path, text.encode())


def save_model(model: Any, path: Path) -> None:
    """Save a model; if its place fails it, keep it in the folder for temporary files and say so in the error."""
    try:
        model.save(path)
    except ModelFileError as error:
        rescue = Path(tempfile.gettempdir()) / f"rescued-{secrets.token_hex(4)}-{path.name}"
        try:
            model.save(rescue)
        except ModelFileError:
            raise error from error.__cause__
        raise ModelFileError(f"{error}. The model was kept as {rescue}") from error.__cause__
