"""Random streams: all randomness in the library comes from a `random_state`."""

from __future__ import annotations

import numbers
import os

import numpy as np

from contradpp.errors import ParameterError

# The keys of `stream`. Streams of one seed must differ in their keys.
START, SPLIT, TRAIN, UNIFORM, UPDATE, PATTERN = range(6)  # training a kernel
DROPOUT = 1  # after (round, batch + 1), the key of a batch
RESTART = 2**31  # where others have the round
HELD_OUT_ITEM, UNIFORM_SETS, RESAMPLING = range(3)  # evaluation, with a seed of its own
HELD_OUT_BASKETS, EXAMPLES, HALVES, PARTS = range(71, 75)  # `ConditionalDPP` and slates
COMPONENT, CLUSTER_START, CLUSTER_CHOICE, CLUSTER_DRAW = range(81, 85)  # mixtures
COLD_ITEMS, REPORTED = 76, 77  # slates/similarity.py has 74 and 75 of the seed 0

RandomState = int | np.random.Generator | np.random.SeedSequence | np.random.RandomState | None


def as_generator(random_state: RandomState = None) -> np.random.Generator:
    """Convert a user's `random_state` to a NumPy generator.

    An integer gives the same stream every time; a generator is returned as it is; None draws a
    fresh seed.
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
        "random_state must be None, a non-negative integer or a NumPy Generator, "
        f"got {random_state!r}"
    )


def root_seed(random_state: RandomState = None) -> int:
    """Return the integer from which keyed streams are derived; an integer is its own root."""
    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        as_generator(random_state)  # validates
        return int(random_state)
    if random_state is None:  # as fresh as a new generator, at no cost
        return int.from_bytes(os.urandom(8), "little") >> 1
    return int(as_generator(random_state).integers(0, 2**63 - 1))


def stream(seed: int, *key: int) -> np.random.Generator:
    """Return the stream that belongs to (seed, key), for instance (seed, round, block).

    The key, not the order of calls, decides what is drawn, so that results do not depend on the
    number of threads or workers.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
