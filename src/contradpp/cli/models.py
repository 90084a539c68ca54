"""The models that `fit` can learn, by the word that asks for each."""

from __future__ import annotations

import inspect
from typing import Any

import click

import contradpp as cd

MODELS: dict[str, type[Any]] = {
    "lowrank": cd.LowRankDPP,
}
DEFAULT_MODEL = "lowrank"

# Options whose name differs from the constructor's argument.
ARGUMENTS = {"rank": "n_components", "skew": "n_skew", "seed": "random_state", "jobs": "n_jobs"}


def build(name: str, options: dict[str, Any]) -> Any:
    """The model of this name with the options that were given; None leaves the model's own default.

    An option that the model does not have is a usage error.
    """
    kind = MODELS[name]
    arguments = {}
    for option, value in options.items():
        argument = ARGUMENTS.get(option, option)
        if value is None:
            continue
        if argument not in inspect.signature(kind).parameters:
            raise click.UsageError(f"--{option.replace('_', '-')} is not an option of --model {name}")
        arguments[argument] = value
    return kind(**arguments)


def default_of(option: str) -> Any:
    """The default of an option's argument, which is the same for every model that has it."""
    return inspect.signature(cd.LowRankDPP).parameters[ARGUMENTS.get(option, option)].default
