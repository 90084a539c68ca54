"""The errors and warnings that contradpp raises, all of them under `ContradppError`."""

from __future__ import annotations


class ContradppError(Exception):
    """Base class: catch this to catch everything the library raises on purpose.

    `parameters` are the arguments that would mend it, so that the command line can name its options for them.
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
