"""The `contradpp` command: a group whose commands are imported when they are asked for."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from contradpp import __version__
from contradpp.errors import ContradppError

# A command's name, the module under `contradpp.cli` that defines it, and its line in the overview.
COMMANDS = {
    "bench": "measure speed against the machine's limits",
    "demo": "learn a small shop and suggest what goes with a basket",
    "evaluate": "measure a model on held-out baskets",
    "fit": "learn a model from a file of baskets",
    "recommend": "say what goes with a basket",
    "reproduce": "run the paper's tables and figures again, beside the published numbers",
}


class Commands(click.Group):
    """Loads a command's module only when the command is used, so that the overview appears at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        """The command of this name."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"contradpp.cli.{name}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The overview, without importing a single command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="contradpp")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Learn determinantal point processes from baskets, and put them to work."""
    ctx.obj = {"debug": debug}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit 0 if it worked, 1 if it failed, 2 if it was called wrongly."""
    try:
        code: Any = cli.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped.", err=True)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing more to say
        sys.exit(1)
    except (ContradppError, OSError) as error:
        if "--debug" in (sys.argv if arguments is None else arguments):
            raise
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
