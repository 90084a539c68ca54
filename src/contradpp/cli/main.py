"""The `contradpp` command: a group that imports a command when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete

from contradpp import __version__
from contradpp.cli.output import error_message, notes, say

# Commands that are not in a module of their own name.
MODULES = {
    "complete": "recommend",
    "sample": "recommend",
    "slate": "recommend",
    "completion": "main",
}
SECTIONS = {
    "Start here": {
        "demo": "learn a small made-up shop, compare models, see suggestions",
        "doctor": "check the installation",
        "warm": "compile the kernels, so that the first call does not wait",
    },
    "Learn and use a model": {
        "fit": "learn a model from a file of baskets",
        "recommend": "suggest what goes with a basket",
        "slate": "suggest varied items that go with a basket",
        "complete": "fill a basket up to a size",
        "sample": "draw baskets from a model",
        "evaluate": "measure a model on held-out baskets",
        "compare": "find out which model suggests best on your baskets",
        "tune": "search for good settings",
        "info": "describe a model file",
        "card": "write a model card for a model hub",
        "data": "list, describe, fetch and convert baskets",
    },
    "Put it to work": {
        "rerank": "choose varied lists from any recommender's candidates, JSON in and out",
        "serve": "serve a model over HTTP, with a page to try it",
    },
    "Shell": {"completion": "print the script that completes commands in a shell"},
}
SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
COMMANDS = {name: line for section in SECTIONS.values() for name, line in section.items()}


class Commands(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"contradpp.cli.{MODULES.get(name, name)}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        matches = [name for name in COMMANDS if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name]) for name in matches]


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
    del debug  # `main` looks for it among all words
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    Put the line for your shell into its start-up file:

    \b
    bash   eval "$(contradpp completion bash)"     in ~/.bashrc
    zsh    eval "$(contradpp completion zsh)"      in ~/.zshrc
    fish   contradpp completion fish | source      in ~/.config/fish/config.fish
    """
    command = ctx.find_root().command
    click.echo(SHELLS[shell](command, {}, "contradpp", "_CONTRADPP_COMPLETE").source())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit 0 if it worked, 1 if it failed, 2 if it was called wrongly."""
    words = sys.argv[1:] if arguments is None else arguments
    with notes():
        sys.exit(run([word for word in words if word != "--debug"], debug="--debug" in words))


def run(words: list[str], *, debug: bool) -> int:
    """Run the command line, print what went wrong on standard error, and return the exit code."""
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
    except BrokenPipeError:  # nobody reads standard output: let Python flush it into nothing
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            raise
        say(f"Error: {error_message(error)}")
        return 1
    return code if isinstance(code, int) else 0
