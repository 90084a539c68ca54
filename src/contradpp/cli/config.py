"""A whole run in a TOML file: read with `--config`, and written beside the model so that it can be repeated."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

# What a file cannot set: the file itself, and how the result is shown.
_NOT_IN_FILES = ("config", "as_json", "help")


def config_option() -> Callable[[Any], Any]:
    """The option `--config`, whose values stand in for options that are not on the command line."""
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_take,
        help="A TOML file with any of these options; those on the command line come first.",
    )


def _take(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:  # noqa: ARG001
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_config(path, ctx.command)}


def read_config(path: Path, command: click.Command) -> dict[str, Any]:
    """The options of a file by the names of the command's parameters; what it does not know is a usage error."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} is not TOML: {error}", param_hint="--config") from error
    known = {words(param): param.name for param in command.params if param.name not in _NOT_IN_FILES}
    values = {}
    for key, value in content.items():
        word = key.replace("_", "-")
        if word not in known:
            close = difflib.get_close_matches(word, known, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(known)}."
            raise click.BadParameter(f"{path}: there is no option {key!r}. {hint}", param_hint="--config")
        if not isinstance(value, (str, int, float)):
            kind = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a date"
            raise click.BadParameter(f"{path}: {key!r} is {kind}, not a plain value", param_hint="--config")
        values[str(known[word])] = value
    return values


def words(param: click.Parameter) -> str:
    """What a parameter is called in a file: its long option without the dashes."""
    return max(param.opts, key=len).lstrip("-").replace("_", "-").lower()


def as_toml(values: Mapping[str, Any], command: click.Command, *, comment: str) -> str:
    """The values, by the names of the command's parameters, as a TOML file; None is left out."""
    names = {str(param.name): words(param) for param in command.params if param.name not in _NOT_IN_FILES}
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"{names[name]} = {_plain(values[name])}" for name in names if values.get(name) is not None]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
