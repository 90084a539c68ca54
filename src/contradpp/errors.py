"""The errors and warnings that contradpp raises, all of them under `ContradppError`."""

from __future__ import annotations

import difflib
from collections.abc import Collection


class ContradppError(Exception):
    """Base class: catch this to catch everything the library raises on purpose.

    Parameters
    ----------
    parameters : tuple of str
        The arguments to change; the command line names its options for them.
    """

    def __init__(self, *args: object, parameters: tuple[str, ...] = ()) -> None:
        super().__init__(*args)
        self.parameters = parameters


class ParameterError(ContradppError, ValueError):
    """An argument has a value that cannot be used."""


class DataError(ContradppError, ValueError):
    """Baskets, or the file they come from, are malformed or unusable."""


class UnknownItemError(ContradppError, LookupError):
    """A query names items that are not in the vocabulary."""


class RankError(ParameterError):
    """A set is too large for the kernel's rank, so that its probability is zero."""


class NumericalError(ContradppError, ArithmeticError):
    """A matrix that should be positive definite is not, even after jitter."""


class ConvergenceError(ContradppError, RuntimeError):
    """Training left the finite numbers; the estimator keeps its last good parameters."""


class ModelFileError(ContradppError, ValueError):
    """A model file is damaged, truncated, foreign or of a newer version."""


class CheckpointError(ContradppError, ValueError):
    """A checkpoint is damaged, or belongs to other data or settings."""


class ClusterError(ContradppError, RuntimeError):
    """A worker died, fell silent or could not be started."""


class DownloadError(ContradppError, OSError):
    """A data set could not be fetched, or its checksum is wrong."""


class NotFittedError(ContradppError, ValueError, AttributeError):
    """The estimator has no parameters yet: call `fit`, `from_factors` or `load`."""


class MissingExtraError(ContradppError, ImportError):
    """An optional dependency is not installed; the message names the extra."""


def check_choice(name: str, value: object, allowed: Collection[str]) -> None:
    """Raise `ParameterError` unless the value is one of those allowed."""
    if value not in allowed:
        words = ", ".join(map(repr, allowed))
        hint = did_you_mean(value, allowed)
        raise ParameterError(f"{name} must be one of {words}, got {value!r}{hint}")


def did_you_mean(word: object, known: Collection[str]) -> str:
    """Return a question that names the known word closest to this one; empty if none is close."""
    found = difflib.get_close_matches(str(word), known, n=1)
    return f". Did you mean {found[0]!r}?" if found else ""
