"""`contradpp doctor`: is everything here that the library needs, and does it work?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from contradpp.cli import checks
from contradpp.cli.checks import Check
from contradpp.cli.output import Column, busy, json_option, show_json, show_table

SIGNS = {"ok": "✓", "note": "·", "failed": "✗"}


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check the installation: versions, threads, BLAS, compile cache, memory, extras, and a short self-test.

    Exits with 1 if a check failed.
    """
    found: list[Check] = []
    for title, examine in checks.ALL:
        with busy(f"{title} ..."):
            found += _safely(title, examine)
    failed = [check for check in found if check.verdict == "failed"]
    if as_json:
        show_json({"ok": not failed, "checks": [check._asdict() for check in found]})
    else:
        _show(found, failed)
    sys.exit(1 if failed else 0)


def _safely(title: str, examine: Callable[[], list[Check]]) -> list[Check]:
    """The findings, or the failure of the check itself as one."""
    try:
        return examine()
    except Exception as error:
        return [Check(title, "failed", f"{type(error).__name__}: {error}", "reinstall contradpp")]


def _show(found: list[Check], failed: list[Check]) -> None:
    rows: list[list[Any]] = [[SIGNS[check.verdict], check.name, check.found] for check in found]
    show_table([Column(""), Column("check"), Column("found")], rows)
    for check in found:
        if check.advice:
            click.echo(f"{SIGNS[check.verdict]} {check.name}: {check.advice}")
    click.echo(f"{len(failed)} of {len(found)} checks failed." if failed else "Everything works.")
