"""Rows of a matrix by `DPPSelector`, and beside apricot and pyversity.

    python -m experiments.speed.rows --rows 1000000 --columns 256 -n 100
    pip install apricot-select==0.6.1 pyversity==0.2.0
    python -m experiments.speed.rows --compare

X is in float32, in 200 clusters. Memory is the peak of the process, X included. --compare chooses
among the handwritten digits of scikit-learn: in each of 10 random halves, rows without labels. Then
logistic regression learns from these rows, and its accuracy is measured on the other half. The
log-determinant is that of the rows' cosines plus 10⁻³.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from contradpp.select import METHODS, DPPSelector

Choice = Callable[[NDArray[np.float64], int, int], Any]  # the chosen rows, given X, n and a seed


def by_pyversity(strategy: str) -> Choice:
    """Choose by pyversity, with equal scores and the most weight on diversity."""
    from pyversity import diversify

    return lambda X, n, _: diversify(X, np.ones(len(X)), n, strategy, diversity=1.0).indices


def compare(sizes: tuple[int, ...] = (20, 50, 100), halves: int = 10) -> None:
    """Print milliseconds, log-determinants and accuracies of every method."""
    from apricot import FacilityLocationSelection, FeatureBasedSelection
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    methods: dict[str, Choice] = {
        "DPPSelector, greedy": lambda X, n, _: DPPSelector(n, n_jobs=1).fit(X).indices_,
        "DPPSelector, sample": lambda X, n, seed: (
            DPPSelector(n, method="sample", n_jobs=1, random_state=seed).fit(X).indices_
        ),
        "pyversity, DPP": by_pyversity("dpp"),
        "pyversity, MMR": by_pyversity("mmr"),
        "pyversity, MSD": by_pyversity("msd"),
        "apricot, facility location": lambda X, n, _: FacilityLocationSelection(n, metric="cosine").fit(X).ranking,
        "apricot, feature-based": lambda X, n, _: FeatureBasedSelection(n).fit(X).ranking,
        "random rows": lambda X, n, seed: np.random.default_rng(seed).permutation(len(X))[:n],
    }
    X, y = load_digits(return_X_y=True)
    click.echo(f"{'method':28}{'n':>5}{'ms':>10}{'log det':>10}{'accuracy':>10}{'± s.e.':>8}")
    for n in sizes:
        for name, choose in methods.items():
            found = []
            for seed in range(halves):
                order = np.random.default_rng(seed).permutation(len(X))
                train, test = np.array_split(order, 2)
                if seed == 0:
                    choose(X[train], min(n, 60), seed)  # compiles
                if name == "DPPSelector, sample" and n > np.linalg.matrix_rank(X[train]):
                    break
                start = time.process_time()
                rows = np.asarray(choose(X[train], n, seed))
                took = time.process_time() - start
                assert len(set(rows.tolist())) == n
                Z = X[train][rows] / np.linalg.norm(X[train][rows], axis=1, keepdims=True)
                log_det = np.linalg.slogdet(Z @ Z.T + 1e-3 * np.eye(n))[1]
                classifier = LogisticRegression(max_iter=2000).fit(X[train][rows] / 16, y[train][rows])
                found.append((1e3 * took, log_det, classifier.score(X[test] / 16, y[test])))
            if not found:
                click.echo(f"{name:28}{n:5}  n is above the rank of X")
                continue
            ms, log_det, accuracy = np.mean(found, axis=0)
            error = np.std(found, axis=0, ddof=1)[2] / len(found) ** 0.5
            click.echo(f"{name:28}{n:5}{ms:10.1f}{log_det:10.1f}{accuracy:10.3f}{error:8.3f}")


@click.command(help=__doc__)
@click.option("--rows", default=200_000)
@click.option("--columns", default=64)
@click.option("-n", default=50)
@click.option("--method", default="greedy", type=click.Choice(METHODS))
@click.option("--compare", "beside", is_flag=True, help="Compare with apricot and pyversity on digits.")
def rows(rows: int, columns: int, n: int, method: str, *, beside: bool) -> None:
    """Print processor seconds, seconds and gigabytes."""
    if beside:
        with threadpool_limits(1):
            compare()
        return
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns), dtype=np.float32)
    X *= np.float32(0.5)
    X += rng.standard_normal((200, columns), dtype=np.float32)[rng.integers(0, 200, rows)]
    DPPSelector(1, method=method, random_state=0).fit(X[:100])  # compiles
    start = time.process_time(), time.perf_counter()
    DPPSelector(n, method=method, random_state=0).fit(X)
    busy, passed = time.process_time() - start[0], time.perf_counter() - start[1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    click.echo(f"{busy:.2f} processor seconds, {passed:.2f} seconds, {memory:.2f} GB")


if __name__ == "__main__":
    rows()
