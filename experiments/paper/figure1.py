"""Figure 1 with its hyperparameters tuned as the paper tunes them.

"|A⁺|/|A⁻| set to the optimal value for each model; α is set to its optimal LowRank value." What is optimal is decided
here on validation baskets, by the mean log-probability of an item given the other, over all runs; so is the length of
the fixed phase. Test baskets are the same two sets, so that no other choice is possible.

    python -m experiments.paper.figure1                                     # a few minutes; writes figure1.json
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np

from contradpp import datasets
from contradpp.learn.params import FitData, problem_of
from experiments.paper.schedules import FIXED_STEPS, TEST_SHARE, VALIDATION_SHARE, curve, params_of
from experiments.paper.training import toy_results

ALPHAS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
METHODS = ("mle", "explicit", "dynamic")
RANK = 2  # the size of the largest basket; the paper does not print it

Result = dict[str, Any]


@cache
def runs(method: str, alpha: float, ratio: float, n_runs: int) -> list[list[Result]]:
    """Return the toy results of every run at every length of the fixed phase (n_runs, n_lengths)."""
    found = []
    for seed in range(n_runs):
        train, _ = datasets.load("toy").split(TEST_SHARE, random_state=seed)
        part, validation = train.split(VALIDATION_SHARE, random_state=seed)
        params = params_of(method, RANK, seed, 1, alpha=alpha, negative_ratio=ratio)
        problem = problem_of(FitData(part, validation=validation), params, seed)
        found.append([toy_results(stop.model) for stop in curve(problem, params) if stop.phase == "small"])
    return found


def score(results: list[list[Result]], place: int) -> float:
    """Return the mean log-probability of the right next item; a run that diverged counts with its last length."""
    return float(
        np.mean([np.log(np.maximum(run[min(place, len(run) - 1)]["probabilities"], 1e-300)) for run in results])
    )


def tuned(method: str, candidates: list[tuple[float, float]], n_runs: int) -> Result:
    """Return the best of the candidates (α, ratio) at the best length, and what every run gives there."""
    found = {
        (alpha, ratio, place): score(runs(method, alpha, ratio, n_runs), place)
        for alpha, ratio in candidates
        for place in range(len(FIXED_STEPS))
    }
    alpha, ratio, place = max(found, key=lambda key: found[key])
    chosen = [run[min(place, len(run) - 1)] for run in runs(method, alpha, ratio, n_runs)]
    at_50 = [run[0] for run in runs(method, alpha, ratio, n_runs)]
    return {
        "method": method,
        "alpha": alpha,
        "ratio": ratio,
        "fixed_steps": FIXED_STEPS[place],
        "settings_tried": len(found),
        "chosen": summary(chosen),
        "after 50 steps": summary(at_50),
    }


def summary(results: list[Result]) -> Result:
    """Return means and standard deviations over runs."""
    probabilities = np.array([one["probabilities"] for one in results])
    divergences = np.array([one["net_divergence"] for one in results])
    return {
        "probabilities": probabilities.mean(axis=0).tolist(),
        "deviation": float(probabilities.std(axis=0, ddof=1).mean()),
        "net_divergence": float(divergences.mean()),
        "net_deviation": float(divergences.std(ddof=1)),
    }


@click.command()
@click.option("--runs", "n_runs", default=10, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("schedules"), show_default=True)
def main(n_runs: int, output: Path) -> None:
    """Tune α for LowRank and the ratio for each method, and write the predictions."""
    lowrank = tuned("mle", [(alpha, 0.5) for alpha in ALPHAS], n_runs)
    candidates = [(lowrank["alpha"], ratio) for ratio in RATIOS]
    found = [lowrank, *(tuned(method, candidates, n_runs) for method in METHODS[1:])]
    output.mkdir(parents=True, exist_ok=True)
    (output / "figure1.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    for one in found:
        click.echo(json.dumps(one))


if __name__ == "__main__":
    main()
