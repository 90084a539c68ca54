"""When to slow down and when to stop, decided on a score that is measured while training goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np

from contradpp.learn.checkpoint import Resumable, Snapshot


class Verdict(Enum):
    """What to do after a score."""

    GO_ON = "go on"
    SLOW_DOWN = "slow down"
    CONVERGED = "converged"


class Schedule(Resumable, Protocol):
    """Turns scores into step sizes and an end."""

    rate: float

    def judge(self, score: float) -> Verdict:
        """Take note of the newest score (higher is better)."""
        ...


@dataclass
class Plateau:
    """Lower the step size when the score stops rising, and end when that has happened often enough.

    Parameters
    ----------
    tol : float
        A score counts as a rise if it is above the best one by more than tol × |best|.
    patience : int
        How many scores without a rise are waited for.
    reductions : int
        How often the step size is lowered before the end.
    factor : float
        What the step size is multiplied by.
    """

    tol: float
    patience: int = 2
    reductions: int = 3
    factor: float = 0.3
    rate: float = 1.0
    _best: float = field(default=-np.inf, init=False)
    _waited: int = field(default=0, init=False)
    _reduced: int = field(default=0, init=False)

    def judge(self, score: float) -> Verdict:
        """See `Schedule`."""
        if self._best == -np.inf or score > self._best + self.tol * abs(self._best):
            self._best = max(score, self._best)
            self._waited = 0
            return Verdict.GO_ON
        self._waited += 1
        if self._waited < self.patience:
            return Verdict.GO_ON
        if self._reduced == self.reductions:
            return Verdict.CONVERGED
        self._reduced += 1
        self._waited = 0
        self.rate *= self.factor
        return Verdict.SLOW_DOWN

    def snapshot(self) -> Snapshot:
        """See `Resumable`."""
        return {"rate": self.rate, "best": self._best, "waited": self._waited, "reduced": self._reduced}

    def restore(self, kept: Snapshot) -> None:
        """See `Resumable`."""
        self.rate, self._best = float(kept["rate"]), float(kept["best"])
        self._waited, self._reduced = int(kept["waited"]), int(kept["reduced"])


@dataclass
class Steady:
    """The same steps until the rounds are used up: continued learning has no plateau to wait for."""

    rate: float = 1.0

    def judge(self, score: float) -> Verdict:  # noqa: ARG002
        """See `Schedule`."""
        return Verdict.GO_ON

    def snapshot(self) -> Snapshot:
        """See `Resumable`."""
        return {"rate": self.rate}

    def restore(self, kept: Snapshot) -> None:
        """See `Resumable`."""
        self.rate = float(kept["rate"])


@dataclass
class RelativeChange:
    """End when the score changes by at most `tol` of itself: the rule of LowRankDPP.jl and the paper."""

    tol: float
    rate: float = 1.0
    _last: float = field(default=np.nan, init=False)

    def judge(self, score: float) -> Verdict:
        """See `Schedule`."""
        change = abs(score - self._last)
        self._last = score
        return Verdict.CONVERGED if change <= self.tol * abs(score) else Verdict.GO_ON

    def snapshot(self) -> Snapshot:
        """See `Resumable`."""
        return {"rate": self.rate, "last": self._last}

    def restore(self, kept: Snapshot) -> None:
        """See `Resumable`."""
        self.rate, self._last = float(kept["rate"]), float(kept["last"])
