"""`contradpp serve`: a model behind HTTP, with a page to try it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from contradpp.cli.inputs import model_argument, option
from contradpp.serve.options import TOKEN, Limits, ServiceSettings, beyond_loopback

LIMITS = {
    "timeout": "--timeout", "body_bytes": "--max-body", "basket_items": "--max-basket", "batch": "--max-batch",
    "suggestions": "--max-n", "work": "--max-work", "connections": "--max-connections",
}  # fmt: skip


def limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """An option for each of these limits."""
    for limit in reversed([one for one in fields(Limits) if one.name in LIMITS]):
        kind = click.IntRange(1) if isinstance(limit.default, int) else click.FloatRange(0, min_open=True)
        words = (LIMITS[limit.name], limit.name)
        command = option(*words, default=limit.default, type=kind, help=limit.metadata["help"])(command)
    return command


@click.command()
@model_argument
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", default=8000, type=click.IntRange(0, 65535))
@option("--workers", default=1, type=click.IntRange(1), help="Processes that share the port.")
@option("--n-jobs", default=1, type=click.IntRange(1), help="Threads of one model call.")
@option("--token", envvar=TOKEN, help=f"Bearer token for feedback, new items and reload; better given as {TOKEN}.")
@option("--allow-host", "hosts", multiple=True, help="A name that the server goes by; IP addresses always do.")
@option("--feedback", type=click.Path(dir_okay=False), help="Keep what was shown, accepted and rejected in this file.")
@option(
    "--feedback-bytes",
    default=64_000_000,
    type=click.IntRange(1),
    help="Length from which it is set aside as FILE.1, FILE.2, ...; `fit --feedback` reads all of them.",
)
@limit_options
@option("--watch", default=1.0, type=click.FloatRange(0), help="Seconds; 0: never reload.")
@option("--access-log/--no-access-log", default=True)
@option("--log-bodies", is_flag=True, help="Let the access log show what was asked. Baskets tell about people.")
def serve(
    model: str, host: str, port: int, workers: int, n_jobs: int, token: str | None, hosts: tuple[str, ...],
    feedback: str | None, feedback_bytes: int, watch: float, access_log: bool, log_bodies: bool, **limits: Any,
) -> None:  # fmt: skip
    """Serve MODEL over HTTP, with a page at / and the interface described at /docs."""
    from contradpp.serve.server import run_server

    settings = ServiceSettings(
        model=os.path.abspath(model), token=token or None, feedback=os.path.abspath(feedback) if feedback else None,
        hosts=hosts, limits=Limits(**limits), watch_seconds=watch, n_jobs=n_jobs, access_log=access_log,
        log_bodies=log_bodies, feedback_bytes=feedback_bytes,
    )  # fmt: skip
    shown = "localhost" if not beyond_loopback(host) else host
    click.echo(f"Serving {model} on http://{shown}:{port} (the interface: /docs). Press Ctrl+C to stop.")
    run_server(settings, host=host, port=port, workers=workers)
