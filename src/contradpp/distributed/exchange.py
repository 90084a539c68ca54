"""What workers tell each other: one operation, `gather`, by which everyone hears what each has to say.

They meet at a `Meeting`: an object that threads share, or an actor of Ray's. There, large arrays stay in Ray's object
store; the meeting passes on where they are.
"""

from __future__ import annotations

from threading import Condition
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from contradpp.errors import ClusterError

LARGE = 100_000  # bytes from which on the object store is faster than a message
T = TypeVar("T")


class Meeting:
    """The place itself: whoever comes waits until all `size` are there, for `timeout` seconds, or one cannot come."""

    def __init__(self, size: int, timeout: float) -> None:
        self._size, self._timeout = size, timeout
        self._brought: dict[int, dict[int, Any]] = {}  # by the number of the gathering, and by rank
        self._loss = ""
        self._changed = Condition()

    def meet(self, number: int, rank: int, value: Any) -> list[Any] | str:
        """What all bring to the gathering of this number, in order of rank; or why it will never take place."""
        with self._changed:
            brought = self._brought.setdefault(number, {})
            brought[rank] = value
            if len(brought) == self._size:
                self._brought.pop(number - 1, None)  # whoever is here has heard everything there
                self._changed.notify_all()
            self._changed.wait_for(lambda: len(brought) == self._size or self._loss, self._timeout)
            if len(brought) == self._size:
                return [brought[other] for other in range(self._size)]
            missing = " and ".join(str(other) for other in range(self._size) if other not in brought)
            return self._loss or f"worker {missing} has not answered for {self._timeout:g} s"

    def leave(self, why: str) -> None:
        """Say that a worker will not come any more, and why."""
        with self._changed:
            self._loss = self._loss or why
            self._changed.notify_all()


class RemoteMeeting:
    """A meeting that is an actor of Ray's."""

    def __init__(self, actor: Any, timeout: float) -> None:
        self._actor, self._timeout = actor, 2 * timeout  # the meeting knows better who is missing: let it say so first

    def meet(self, number: int, rank: int, value: Any) -> list[Any] | str:
        """See `Meeting`."""
        import ray

        try:
            given = [ray.put(value) if n_bytes(value) >= LARGE else value]  # in a list, a reference is not followed
            told = ray.get(self._actor.meet.remote(number, rank, given), timeout=self._timeout)
            if isinstance(told, str):
                return told
            values = [one for (one,) in told]
            places = [place for place, one in enumerate(values) if isinstance(one, ray.ObjectRef)]
            found = ray.get([values[place] for place in places], timeout=self._timeout)
            for place, one in zip(places, found, strict=True):
                values[place] = one
            return values
        except (ray.exceptions.RayError, TimeoutError) as error:
            return f"the workers can no longer reach each other: {error}"

    def leave(self, why: str) -> None:
        """See `Meeting`."""
        self._actor.leave.remote(why)


class Exchange:
    """One of `size` workers, which all call the same operations in the same order."""

    def __init__(self, rank: int, size: int, place: Meeting | RemoteMeeting | None) -> None:
        self.rank, self.size = rank, size
        self.sent = 0  # bytes of arrays that this worker has brought so far; each of the others fetches them
        self._place, self._number = place, 0

    def gather(self, value: T) -> list[T]:
        """What every worker brings, in order of rank: an array, or a tuple or dictionary of arrays and small things.

        Arrays that come from others may be read-only.
        """
        if self._place is None:
            return [value]
        self.sent += n_bytes(value)
        told = self._place.meet(self._number, self.rank, value)
        self._number += 1
        if isinstance(told, str):
            raise ClusterError(told)
        return told

    def sum(self, array: NDArray[Any]) -> NDArray[Any]:
        """The sum over workers of arrays of one shape, added in order of rank: the same bits for all."""
        parts = self.gather(array)
        if any(part.shape != array.shape for part in parts):
            raise ClusterError(f"the workers disagree: sums of shapes {sorted({part.shape for part in parts})}")
        total: NDArray[Any] = np.sum(parts, axis=0)
        return total

    def leave(self, why: str) -> None:
        """Tell the others that we shall not come any more, so that they need not wait."""
        if self._place is not None:
            self._place.leave(f"worker {self.rank} {why}")


class Alone(Exchange):
    """One worker: there is nobody to meet."""

    def __init__(self) -> None:
        super().__init__(0, 1, None)


def n_bytes(value: Any) -> int:
    """The size of the arrays in a value."""
    if isinstance(value, (tuple, list)):
        return sum(map(n_bytes, value))
    if isinstance(value, dict):
        return sum(map(n_bytes, value.values()))
    return len(value) if isinstance(value, bytes) else getattr(value, "nbytes", 0)
