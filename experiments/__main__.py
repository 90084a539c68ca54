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
SPEED = {
    "attack": ("experiments.speed.hostile", "the service under hostile requests and connections"),
    "clusters": (
        "experiments.speed.clusters",
        "the number of clusters of a mixture, and sizes of samples; draws figures",
    ),
    "cluster": ("experiments.speed.large", "training on several workers, beside threads of one process"),
    "completions": ("experiments.speed.clusters", "baskets filled up by `complete` and by `recommend`"),
    "cost": ("experiments.speed.learning", "a training step against catalogue, rank and basket size; draws a figure"),
    "evaluation": ("experiments.speed.answers", "a whole evaluation over the matrix product it needs"),
    "files_visited": ("experiments.speed.files_visited", "the files of the package that a call walks through"),
    "fuzz_api": ("experiments.speed.service", "made-up requests from the OpenAPI document: no 5xx allowed"),
    "kernels": ("experiments.speed.clusters", "a ConditionalDPP with a mixture beside one with a single kernel"),
    "known_kernels": ("experiments.speed.known", "kernels that are known, learned from samples of them"),
    "large": ("experiments.speed.large", "time and memory of a generated shop, from files to recommendations"),
    "load": ("experiments.speed.service", "the service under load"),
    "profiles": ("experiments.speed.learning", "where the time of training goes"),
    "published": ("experiments.speed.known", "the published nonsymmetric DPPs, by their protocol"),
    "pytorch": ("experiments.speed.learning", "training steps beside PyTorch autograd"),
    "sampling": ("experiments.speed.answers", "exact samples beside DPPy"),
    "slates": ("experiments.speed.answers", "rerank beside pyversity and the published greedy algorithm"),
    "soak": ("experiments.speed.soak", "the faults of the tests many times over"),
    "symmetric": ("experiments.speed.known", "a kernel that only repels, beside popularity"),
}


class Commands(click.Group):
    """Imports a command of a table (name: module and one line of help) on demand."""

    def __init__(self, table: dict[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(**options)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*self.table, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command of this name."""
        if name not in self.table:
            return super().get_command(ctx, name)
        try:
            module = importlib.import_module(self.table[name][0])
        except ModuleNotFoundError as error:
            raise click.ClickException(f"{error}: pip install -e '.[experiments,dev]'") from error
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the overview without importing a command."""
        lines = [(name, line) for name, (_, line) in self.table.items()]
        lines += [(name, command.get_short_help_str(90)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(lines)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of the library is a message without a traceback."""
        try:
            return super().invoke(ctx)
        except ContradppError as error:
            raise click.ClickException(str(error)) from error


HELP = {"help_option_names": ["-h", "--help"]}
main = Commands(
    COMMANDS, context_settings=HELP, help="Run the paper's experiments, the benchmark and measurements from a clone."
)
main.add_command(Commands(SPEED, name="speed", help="Run one of the measurements that the pages of docs/ cite."))


if __name__ == "__main__":
    main(prog_name="python -m experiments")
