"""The `contradpp` command: a group whose commands are imported when they are asked for."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

from contradpp import __version__
from contradpp.cli.output import explain, notes, say

# A command's name, and its line in the overview. A module of `contradpp.cli` of that name defines it, or one of these.
MODULES = {"recommend": "ask", "complete": "ask", "sample": "ask", "slate": "ask", "completion": "main",
           "card": "info", "compare": "evaluate", "tune": "evaluate"}  # fmt: skip
SECTIONS = {
    "Start here": {
        "demo": "learn a small made-up shop, compare models, see suggestions",
        "doctor": "check the installation",
        "warm": "compile the kernels now, so that the first call does not wait",
    },
    "Learn and use a model": {
        "fit": "learn a model from a file of baskets",
        "recommend": "say what goes with a basket",
        "slate": "say what goes with a basket, without more of the same",
        "complete": "fill a basket up to a size",
        "sample": "draw baskets from a model",
        "evaluate": "measure a model on held-out baskets",
        "compare": "say which model suggests best on baskets of yours",
        "tune": "search for the settings that suit the data",
        "info": "say what a model file holds",
        "card": "write a model card, as model hubs show it",
        "data": "list, describe, fetch and convert baskets",
    },
    "Put it to work": {
        "rerank": "choose varied lists from any recommender's candidates, JSON in and out",
        "serve": "offer a model over HTTP, with a page to try it",
    },
    "Shell": {
        "completion": "print the script that completes commands in a shell",
    },
}
SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
COMMANDS = {name: line for section in SECTIONS.values() for name, line in section.items()}


class Commands(click.Group):
    """Loads a command's module only when the command is used, so that the overview appears at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        """The command of this name."""
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"contradpp.cli.{MODULES.get(name, name)}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The overview, without importing a single command."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands that begin so, without importing a single one; options as usual."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)]


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="contradpp")
@click.option("--debug", is_flag=True, help="Show the traceback of an error; may stand anywhere.")
@click.pass_context
def cli(ctx: click.Context, /, debug: bool) -> None:
    """Learn determinantal point processes from baskets, and put them to work.

    \b
    contradpp demo                              see it work, in a minute
    contradpp fit orders.csv -o shop.safetensors
    contradpp recommend shop.safetensors "green tea"
    """
    del debug  # `main` has looked for it among all words
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in SHELL; put the line for yours into its start-up file.

    \b
    bash   eval "$(contradpp completion bash)"     in ~/.bashrc
    zsh    eval "$(contradpp completion zsh)"      in ~/.zshrc
    fish   contradpp completion fish | source      in ~/.config/fish/config.fish
    """
    click.echo(SHELLS[shell](ctx.find_root().command, {}, "contradpp", "_CONTRADPP_COMPLETE").source())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit 0 if it worked, 1 if it failed, 2 if it was called wrongly."""
    given = sys.argv[1:] if arguments is None else arguments
    with notes():
        sys.exit(run([word for word in given if word != "--debug"], debug="--debug" in given))


def run(words: list[str], *, debug: bool) -> int:
    """Run the command line, say on standard error what went wrong, and return the exit code."""
    try:
        code: Any = cli.main(words, "contradpp", standalone_mode=False)
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        say(f"Error: {error.format_message()}")
        if context is not None:
            say(f"`{context.command_path} --help` shows how it is used.")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("Stopped.")
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nothing more to say
        return 1
    except Exception as error:
        if debug:
            raise
        say(f"Error: {explain(error)}")
        return 1
    return code if isinstance(code, int) else 0
