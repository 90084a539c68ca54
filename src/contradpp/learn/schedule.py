"""When to slow down and when to stop, decided on a score that is measured while training goes on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from contradpp.learn.checkpoint import kept


class Verdict(Enum):
    """What to do after a score."""

    GO_ON = "go on"
    SLOW_DOWN = "slow down"
    CONVERGED = "converged"


class Schedule(Protocol):
    """Turns scores into step sizes and an end."""

    rate: float

    def judge(self, score: float) -> Verdict:
        """Take note of the newest score (higher is better)."""

    def rounds_left(self) -> float:
        """How many more rounds are likely, infinite if the score has no say."""


@dataclass
class Plateau:
    """Lower the step size when the score stops rising, and end when that has happened often enough."""

    tol: float  # a score counts as a rise if it is above the best one by more than tol × |best|
    patience: int = 2  # scores without a rise
    reductions: int = 3  # of the step size, before the end
    factor: float = 0.3  # by which it is reduced
    rate: float = kept(default=1.0)
    best: float = kept(default=-np.inf, init=False)
    waited: int = kept(default=0, init=False)
    reduced: int = kept(default=0, init=False)

    def judge(self, score: float) -> Verdict:
        """See `Schedule`."""
        if self.best == -np.inf or score > self.best + self.tol * abs(self.best):
            self.best = max(score, self.best)
            self.waited = 0
            return Verdict.GO_ON
        self.waited += 1
        if self.waited < self.patience:
            return Verdict.GO_ON
        if self.reduced == self.reductions:
            return Verdict.CONVERGED
        self.reduced += 1
        self.waited = 0
        self.rate *= self.factor
        return Verdict.SLOW_DOWN

    def rounds_left(self) -> float:
        """As if the score rose in one more round at every size of steps still to come."""
        return self.patience - self.waited + (self.reductions - self.reduced) * (self.patience + 1)


@dataclass
class Steady:
    """The same steps until the rounds are used up: continued learning has no plateau to wait for."""

    rate: float = kept(default=1.0)

    def judge(self, score: float) -> Verdict:  # noqa: ARG002
        """See `Schedule`."""
        return Verdict.GO_ON

    def rounds_left(self) -> float:
        """See `Schedule`."""
        return np.inf


@dataclass
class RelativeChange:
    """End when the score changes by at most `tol` of itself: the rule of LowRankDPP.jl and the paper."""

    tol: float
    rate: float = kept(default=1.0)
    last: float = kept(default=np.nan, init=False)

    def judge(self, score: float) -> Verdict:
        """See `Schedule`."""
        change = abs(score - self.last)
        self.last = score
        return Verdict.CONVERGED if change <= self.tol * abs(score) else Verdict.GO_ON

    def rounds_left(self) -> float:
        """See `Schedule`: how soon the score settles is not known."""
        return np.inf
