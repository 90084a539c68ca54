"""The models that `fit` can learn, by the word that asks for each."""

from __future__ import annotations

import inspect
from typing import Any

import click

import contradpp as cd

MODELS: dict[str, type[Any]] = {
    "lowrank": cd.LowRankDPP,
    "nonsymmetric": cd.NonsymmetricDPP,
}
DEFAULT_MODEL = "nonsymmetric"

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


def default_of(option: str, model: str | None = None) -> Any:
    """The default of an option's argument: the model's, or that of the first model that has it."""
    argument = ARGUMENTS.get(option, option)
    kinds = MODELS.values() if model is None else (MODELS[model],)
    return next(
        signature[argument].default for kind in kinds if argument in (signature := inspect.signature(kind).parameters)
    )
