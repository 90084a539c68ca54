"""`contradpp serve`: a model behind HTTP, with a page to try it."""

from __future__ import annotations

import os

import click

from contradpp.serve.options import TOKEN, Limits, ServiceSettings, beyond_loopback

DEFAULTS = Limits()


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535))
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes that share the port.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of one model call.")
@click.option("--token", envvar=TOKEN, help=f"Bearer token for feedback and reload; better given as {TOKEN}.")
@click.option("--allow-host", "hosts", multiple=True, help="A name that the server goes by; IP addresses always do.")
@click.option("--feedback", type=click.Path(dir_okay=False), help="Keep accepted and rejected sets in this file.")
@click.option(
    "--timeout", default=DEFAULTS.timeout, show_default=True, type=click.FloatRange(0, min_open=True), help="Seconds."
)
@click.option("--max-body", default=DEFAULTS.body_bytes, show_default=True, type=click.IntRange(1), help="Bytes.")
@click.option("--max-basket", default=DEFAULTS.basket_items, show_default=True, type=click.IntRange(1), help="Items.")
@click.option("--max-batch", default=DEFAULTS.batch, show_default=True, type=click.IntRange(1), help="Baskets.")
@click.option("--max-n", default=DEFAULTS.suggestions, show_default=True, type=click.IntRange(1), help="Suggestions.")
@click.option("--watch", default=1.0, show_default=True, type=click.FloatRange(0), help="Seconds; 0: never reload.")
@click.option("--access-log/--no-access-log", default=True, show_default=True)
@click.option("--log-bodies", is_flag=True, help="Let the access log show what was asked. Baskets tell about people.")
def serve(
    model: str, host: str, port: int, workers: int, threads: int, token: str | None, hosts: tuple[str, ...],
    feedback: str | None, timeout: float, max_body: int, max_basket: int, max_batch: int, max_n: int, watch: float,
    access_log: bool, log_bodies: bool,
) -> None:  # fmt: skip
    """Serve MODEL over HTTP, with a page at / and the interface described at /docs."""
    from contradpp.serve.server import run_server

    limits = Limits(timeout=timeout, body_bytes=max_body, basket_items=max_basket, batch=max_batch, suggestions=max_n)
    settings = ServiceSettings(
        model=os.path.abspath(model), token=token or None, feedback=os.path.abspath(feedback) if feedback else None,
        hosts=hosts, limits=limits, watch_seconds=watch, n_jobs=threads, access_log=access_log, log_bodies=log_bodies,
    )  # fmt: skip
    shown = "localhost" if not beyond_loopback(host) else host
    click.echo(f"Serving {model} on http://{shown}:{port} (the interface: /docs). Press Ctrl+C to stop.")
    run_server(settings, host=host, port=port, workers=workers)
