"""The experiments as commands: `python -m experiments reproduce table-amazon`."""

from __future__ import annotations

import importlib
from typing import Any

import click

from contradpp.errors import ContradppError

COMMANDS = {
    "reproduce": ("experiments.commands", "run the paper's tables and figures again, beside the published numbers"),
    "benchmark": ("experiments.commands", "compare every model on every data set"),
    "bench": ("experiments.speed.bench", "measure speed against the machine's limits"),
    "publish": ("experiments.commands", "put what a folder holds into docs/ and README.md"),
}


class Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command of this name."""
        if name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(COMMANDS[name][0])
        except ModuleNotFoundError as error:
            raise click.ClickException(f"{error}: pip install -e '.[experiments]'") from error
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the overview without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of the library is a message without a traceback."""
        try:
            return super().invoke(ctx)
        except ContradppError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run the paper's experiments, the benchmark and the measurements of speed from a clone."""


if __name__ == "__main__":
    main(prog_name="python -m experiments")
