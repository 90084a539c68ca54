"""`contradpp serve`: a model behind HTTP, with a page to try it."""

from __future__ import annotations

import os
from dataclasses import Field, fields
from typing import Any

import click

from contradpp.cli.inputs import COUNT, Decorator, model_argument, option, together
from contradpp.serve.options import TOKEN, Limits, ServiceSettings, beyond_loopback

LIMITS = {
    "timeout": "--timeout",
    "body_bytes": "--max-body",
    "basket_items": "--max-basket",
    "batch": "--max-batch",
    "suggestions": "--max-n",
    "work": "--max-work",
    "connections": "--max-connections",
}


def limit_option(limit: Field[Any]) -> Decorator:
    """Make the option of a limit of the service."""
    kind: Any = COUNT if isinstance(limit.default, int) else click.FloatRange(0, min_open=True)
    flag = LIMITS[limit.name]
    return option(flag, limit.name, default=limit.default, type=kind, help=limit.metadata["help"])


@click.command()
@model_argument
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", default=8000, type=click.IntRange(0, 65535), envvar="CONTRADPP_PORT")
@option("--workers", default=1, type=COUNT, help="Processes that share the port.")
@option("--n-jobs", default=1, type=COUNT, help="Threads of one model call.")
@option(
    "--token",
    envvar=TOKEN,
    help=f"Bearer token for feedback, new items and reload; {TOKEN} is safer than this option.",
)
@option(
    "--allow-host",
    "hosts",
    multiple=True,
    help="Name of this server in requests; its IP addresses are always allowed.",
)
@option(
    "--feedback",
    type=click.Path(dir_okay=False),
    help="File to log what was shown, accepted and rejected.",
)
@option(
    "--feedback-bytes",
    default=64_000_000,
    type=COUNT,
    help="Size at which the log moves to FILE.1, FILE.2, ...; `fit --feedback` reads all of them.",
)
@together(*(limit_option(limit) for limit in fields(Limits) if limit.name in LIMITS))
@option(
    "--watch",
    "watch_seconds",
    default=1.0,
    type=click.FloatRange(0),
    help="Seconds between checks for a new model file; 0: never reload.",
)
@option("--access-log/--no-access-log", default=True)
@option(
    "--log-bodies",
    is_flag=True,
    help="Write requests to the access log. Baskets can reveal something about people.",
)
def serve(
    model: str,
    host: str,
    port: int,
    workers: int,
    token: str | None,
    feedback: str | None,
    **options: Any,
) -> None:
    """Serve MODEL over HTTP, with a page at / and the interface described at /docs."""
    from contradpp.serve.server import run_server

    limits = Limits(**{name: options.pop(name) for name in LIMITS})
    settings = ServiceSettings(
        model=os.path.abspath(model),
        token=token or None,
        feedback=os.path.abspath(feedback) if feedback else None,
        limits=limits,
        **options,
    )
    shown = host if beyond_loopback(host) else "localhost"
    address = f"http://{shown}:{port}"
    click.echo(f"Serving {model} on {address} (interface: {address}/docs). Press Ctrl+C to stop.")
    run_server(settings, host=host, port=port, workers=workers)
