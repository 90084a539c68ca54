"""Random streams: every use of chance in the library starts from a `random_state`."""

from __future__ import annotations

import numbers
import os

import numpy as np

from contradpp.errors import ParameterError

RandomState = int | np.random.Generator | np.random.SeedSequence | np.random.RandomState | None


def as_generator(random_state: RandomState = None) -> np.random.Generator:
    """Turn what a user passes as `random_state` into a NumPy generator.

    An integer gives the same stream every time; a generator is used as it is; None draws a fresh seed.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31 - 1))
    if random_state is None or isinstance(random_state, np.random.SeedSequence):
        return np.random.default_rng(random_state)
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ParameterError(f"random_state must not be negative, got {random_state}")
        return np.random.default_rng(int(random_state))
    raise ParameterError(
        f"random_state must be None, a non-negative integer or a NumPy Generator, got {random_state!r}"
    )


def root_seed(random_state: RandomState = None) -> int:
    """One integer from which keyed streams are derived; an integer `random_state` is its own root."""
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        as_generator(random_state)  # validates
        return int(random_state)
    if random_state is None:
        return int.from_bytes(os.urandom(8), "little") >> 1  # as fresh as a new generator, without the making of one
    return int(as_generator(random_state).integers(0, 2**63 - 1))


def stream(seed: int, *key: int) -> np.random.Generator:
    """The stream that belongs to (seed, key): for instance (seed, round, block).

    The key, not the order of calls, decides what is drawn, so that results do not depend on the number
    of threads or workers.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
