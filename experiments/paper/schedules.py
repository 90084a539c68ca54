"""The schedule study: the paper's methods from the paper's start, trained for 50 to 3,200 steps.

LowRankDPP.jl makes 50 steps of fixed size with momentum, then small steps of decreasing size until the validation
likelihood changes by less than 1e-5 of itself. Here only the number of fixed steps varies. One run of a method passes
all of them, so that a run is a curve:

    python -m experiments.paper.schedules run --data uk --trials 5        # resumable, a file per run
    python -m experiments.paper.schedules page                            # tables and figures from what is there

At every length the model is measured twice, where the fixed steps end and after the small steps, on validation
baskets, which choose a schedule per method, and on test baskets, which are reported.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

from contradpp import Baskets, LowRankDPP, datasets, evaluate
from contradpp._threads import blas_threads
from contradpp.data.sets import take_sets
from contradpp.errors import ConvergenceError
from contradpp.learn.objectives import Batch, Validation, likelihood_monitor
from contradpp.learn.params import FitData, Params, Problem, params_from_flat, problem_of
from contradpp.learn.state import State, first_state
from contradpp.learn.training import Plan, Sharing, batches, make_plan, one_step
from experiments.pages import fixed, replaced
from experiments.paper.published import PRINTED
from experiments.protocol import LABELS

AMAZON = tuple(f"amazon/{name}" for name in ("apparel", "bath", "bedding", "diaper", "feeding", "gear", "health"))
N_COMPONENTS = {"uk": 100, "belgian": 76} | dict.fromkeys(AMAZON, 30)
METHODS = ("mle", "explicit", "dynamic", "nce", "product")
FIXED_STEPS = (50, 100, 200, 400, 800, 1600, 3200)
MOST_SMALL_STEPS = 200
OTHER_ROUNDS = 10_000  # the rounds of the small steps have random streams of their own
TOL = 1e-5  # of the paper's stopping rule
TEST_SHARE = 0.2
VALIDATION_SHARE = 0.05
MONITORED_SHARE = 0.01  # of the training baskets, as the paper has it
MOST_TESTED = 3000
KS = (1, 5, 10, 20)
SHOWN = ("mpr_paper", "mpr", *(f"precision@{k}" for k in KS), "auc", "log_likelihood")
NAMES = {"amazon": "Amazon", "uk": "UK", "belgian": "Belgian"}
SCHEDULES = {"fixed": "{:,.0f}", "small": "{:,.0f}, then small", "rule": "stopped after {:,.0f}"}
COLORS = {"mle": "#444444", "explicit": "#c1440e", "dynamic": "#1f6fb2", "nce": "#8a6bb1", "product": "#6b8e23"}
ROOT = Path(__file__).parents[2]
TABLE = ROOT / "experiments" / "results" / "schedules.csv"

Result = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One method on one split of one data set."""

    data: str
    method: str
    trial: int

    @property
    def file(self) -> str:
        """The name of the file of its result."""
        return f"{self.data.replace('/', '-')}-{self.method}-{self.trial}.json"


# -- Training ----------------------------------------------------------------------------------------


def measure(run: Run, n_jobs: int) -> Result:
    """Train one method along the whole schedule and measure the model at every length."""
    train, test = datasets.load(run.data).split(TEST_SHARE, random_state=run.trial)
    part, validation = train.split(VALIDATION_SHARE, random_state=run.trial)
    parts = {"validation": some_of(validation), "test": some_of(test)}
    params = params_of(run.method, N_COMPONENTS[run.data], run.trial, n_jobs)
    problem = problem_of(FitData(part, validation=validation), params, run.trial)
    points = [
        {"phase": stop.phase, "steps": stop.steps, "seconds": stop.seconds, **metrics_of(stop.model, parts)}
        for stop in curve(problem, params)
    ]
    return {"batches_a_round": -(-problem.data.count // params.batch_size), "points": points}


def params_of(method: str, n_components: int, seed: int, n_jobs: int, **others: Any) -> Params:
    """Return the parameters of training as in the paper."""
    flat = {"n_components": n_components, "objective": method, "settings": "paper", **others}
    return Params.of(LowRankDPP(**params_from_flat(LowRankDPP, flat), random_state=seed, n_jobs=n_jobs))


def metrics_of(model: LowRankDPP, parts: dict[str, Baskets]) -> Result:
    """Return the metrics of a model on each part of the baskets."""
    reports = {name: evaluate(model, baskets, KS, 0, n_jobs=1) for name, baskets in parts.items()}
    return {
        name: {**report.metrics, "mpr_paper": report.mpr_paper, "mpr_all": report.by_size.rows[-1].mpr_paper}
        for name, report in reports.items()
    }


@dataclass(frozen=True)
class Stop:
    """A model on the way: where a phase of fixed steps ends, where small steps end, or where the rule says to stop."""

    phase: str  # "fixed", "small" or "rule"
    steps: int
    seconds: float
    model: LowRankDPP


def curve(problem: Problem, params: Params) -> Iterator[Stop]:
    """Train along the longest schedule, and stop where each of the shorter ones would end."""
    state = first_state(problem, params)
    plan = plan_of(problem, params, state)
    monitor = likelihood_monitor(monitored(problem))
    seconds = 0.0
    ruled = False
    with blas_threads(1):
        source = endless_batches(state, problem, plan)
        last = monitor(state)
        for step in range(1, max(FIXED_STEPS) + 1):
            started = time.perf_counter()
            try:
                one_step(state, next(source), plan, step, Sharing())
            except ConvergenceError:
                return
            score = monitor(state)
            seconds += time.perf_counter() - started
            if not ruled and abs(score - last) <= TOL * abs(score):
                ruled = True
                yield Stop("rule", step, seconds, model_of(state, problem))
            last = score
            if step in FIXED_STEPS:
                yield Stop("fixed", step, seconds, model_of(state, problem))
                started = time.perf_counter()
                model = small_steps(step, state, problem, plan, monitor)
                yield Stop("small", step, seconds + time.perf_counter() - started, model)


def some_of(baskets: Baskets) -> Baskets:
    """Return the first baskets of a part, which is in random order."""
    return baskets.subset(np.arange(min(baskets.n_baskets, MOST_TESTED)))


def plan_of(problem: Problem, params: Params, state: State) -> Plan:
    """Return the plan of `settings="paper"`, its fixed phase as long as the longest schedule."""
    plan = make_plan(problem, params, state)
    return replace(plan, optimizer=replace(plan.optimizer, fixed_steps=max(FIXED_STEPS)))  # type: ignore[type-var]


def monitored(problem: Problem) -> Validation:
    """Return the validation baskets that the paper's stopping rule looks at."""
    sets, weights, _ = problem.validation
    chosen = np.arange(max(round(sets.count * MONITORED_SHARE / VALIDATION_SHARE), 2))
    return Validation(take_sets(sets, chosen), weights[chosen])


def endless_batches(state: State, problem: Problem, plan: Plan, first_round: int = 0) -> Iterator[Batch]:
    """Yield the batches of one round after the other, with negatives drawn from the present factors."""
    for number in count(first_round):
        state.refresh()
        yield from batches(state, problem.data, plan, number)


def small_steps(fixed: int, state: State, problem: Problem, plan: Plan, monitor: Any) -> LowRankDPP:
    """Return the paper's second phase after `fixed` steps: small ones without momentum until its rule ends them."""
    state = state.with_factors(state.V.copy())
    plan = replace(plan, optimizer=replace(plan.optimizer, fixed_steps=fixed, velocity=None, t=fixed))  # type: ignore[type-var]
    source = endless_batches(state, problem, plan, first_round=OTHER_ROUNDS)
    last = monitor(state)
    for step in range(1, MOST_SMALL_STEPS + 1):
        one_step(state, next(source), plan, fixed + step, Sharing())
        score = monitor(state)
        if abs(score - last) <= TOL * abs(score):
            break
        last = score
    return model_of(state, problem)


def model_of(state: State, problem: Problem) -> LowRankDPP:
    """Return the model with the present factors."""
    return LowRankDPP.from_factors(state.V.copy(), items=problem.items)


# -- Commands ----------------------------------------------------------------------------------------


@click.group()
def main() -> None:
    """Train the paper's methods along schedules of different lengths."""


@main.command()
@click.option("--data", multiple=True, default=("amazon", "uk", "belgian"), show_default=True)
@click.option("--methods", multiple=True, default=METHODS, show_default=True)
@click.option("--trials", default=5, show_default=True)
@click.option("--n-jobs", default=1, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("schedules"), show_default=True)
def run(data: tuple[str, ...], methods: tuple[str, ...], trials: int, n_jobs: int, output: Path) -> None:
    """Run what is neither collected nor in a file of its own; each result is a file."""
    output.mkdir(parents=True, exist_ok=True)
    names = [name for word in data for name in (AMAZON if word == "amazon" else (word,))]
    collected = runs_in(pd.read_csv(TABLE)) if TABLE.exists() else set()
    for trial, name, method in product(range(trials), names, methods):
        one = Run(name, method, trial)
        claim = output / f"{one.file}.running"
        if one in collected or (output / one.file).exists():
            continue
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:
            continue
        started = time.perf_counter()
        try:
            result = measure(one, n_jobs)
            (output / one.file).write_text(json.dumps(result), encoding="utf-8")
        finally:
            claim.unlink()
        click.echo(f"{one.file}: {time.perf_counter() - started:.0f} s")


def runs_in(table: pd.DataFrame) -> set[Run]:
    """Return the runs that a table has rows of."""
    return {Run(*key) for key in zip(table["data"], table.method, table.trial, strict=True)}


@main.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("schedules"), show_default=True)
def collect(output: Path) -> None:
    """Add the runs that have a file to the table that the page is made from."""
    rows = [
        {
            "data": one.data,
            "method": one.method,
            "trial": one.trial,
            "phase": point["phase"],
            "steps": point["steps"],
            "rounds": round(point["steps"] / result["batches_a_round"], 1),
            "seconds": round(point["seconds"], 1),
            "validation_mpr": round(point["validation"]["mpr_all"], 3),
            **{metric: round(point["test"][metric], 4) for metric in SHOWN},
        }
        for trial, data, method in product(range(100), N_COMPONENTS, METHODS)
        if (output / (one := Run(data, method, trial)).file).exists()
        for result in [json.loads((output / one.file).read_text(encoding="utf-8"))]
        for point in result["points"]
    ]
    table = pd.DataFrame(rows)
    if TABLE.exists():
        earlier = pd.read_csv(TABLE)
        again = runs_in(table) if rows else set()
        unchanged = [Run(*key) not in again for key in zip(earlier["data"], earlier.method, earlier.trial, strict=True)]
        table = pd.concat([earlier[unchanged], table]).sort_values(["trial", "data", "method"], kind="stable")
    table.to_csv(TABLE, index=False)
    click.echo(f"{len(table)} rows in {TABLE}, {len(rows)} of them new")


@main.command()
def page() -> None:
    """Write the tables and the figure of the pages."""
    table = read_table()
    figure(table).savefig(ROOT / "docs" / "figures" / "schedules.png", dpi=110)
    for path, content in pages(table).items():
        path.write_text(replaced(path.read_text(encoding="utf-8"), "schedules", content), encoding="utf-8")


# -- The page ----------------------------------------------------------------------------------------


def read_table() -> pd.DataFrame:
    """Return all measurements, the seven registries as one data set whose seeds are means over them."""
    table = pd.read_csv(TABLE)
    table["schedule"] = np.where(table.phase == "rule", "rule", table.phase + " " + table.steps.astype(str))
    table["data"] = table["data"].str.partition("/")[0]
    keys = ["data", "method", "trial", "phase", "schedule"]
    return table.groupby(keys, as_index=False).mean()


def chosen(table: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the schedule that validation baskets choose, for every data set and method."""
    scores = table.groupby(["data", "method", "schedule"]).validation_mpr.mean()
    best = scores.groupby(["data", "method"]).idxmax().tolist()
    return table.set_index(["data", "method", "schedule"]).loc[best].reset_index()


def pages(table: pd.DataFrame) -> dict[Path, str]:
    """Return the table of each page: the chosen schedules in docs/, equal schedules beside the results."""
    return {
        ROOT / "docs" / "reproduction.md": chosen_table(table),
        ROOT / "experiments" / "results" / "reproduction.md": equal_table(table),
    }


def equal_table(table: pd.DataFrame) -> str:
    """Return MPR and AUC of every method after the same number of fixed steps."""
    fixed = table[table.phase == "fixed"]
    lines = ["| data | fixed steps | " + " | ".join(LABELS[method] for method in METHODS) + " |"]
    lines.append("|:--|--:|" + "--:|" * len(METHODS))
    for data, steps in product(NAMES, FIXED_STEPS):
        part = fixed[(fixed["data"] == data) & (fixed.steps == steps)]
        means = part.groupby("method")[["mpr_paper", "auc"]].mean()
        cells = [f"{means.mpr_paper[method]:.1f} / {means.auc[method]:.2f}" for method in METHODS]
        lines.append(f"| {NAMES[data]} | {steps:,.0f} | " + " | ".join(cells) + " |")
    caption = "**The same schedule for every method: MPR / AUC** (no small steps, no stopping rule)"
    return "\n".join([caption, "", *lines])


def chosen_table(table: pd.DataFrame) -> str:
    """Return the paper's table from the schedule that validation baskets choose, published numbers beside."""
    best = chosen(table)
    head = ("data", "method", "schedule", "rounds", "seconds", "MPR, published", "ours", "gain, published", "ours",
            "AUC, published", "ours", "p@1", "p@5", "p@10", "p@20")  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|:--|:--|:--|" + "--:|" * (len(head) - 3)]
    for data, method in product(NAMES, METHODS):
        own = part_of(best, data, method)
        base = part_of(best, data, "mle")
        printed = PRINTED[f"table-{data}"]
        theirs = {metric: printed.absolute(method, metric) for metric in ("mpr_paper", "auc")}
        gain = printed.improvement.get(method, {}).get("mpr_paper")
        cells = [
            NAMES[data], LABELS[method], SCHEDULES[own.phase.iloc[0]].format(own.steps.mean()),
            f"{own.rounds.mean():.0f}", f"{own.seconds.mean():.0f}",
            "–" if theirs["mpr_paper"] is None else f"{theirs['mpr_paper']:.2f}", spread(own.mpr_paper, 2),
            "–" if gain is None else f"{gain.value:+.2f}",
            "" if method == "mle" else spread(own.mpr_paper - base.mpr_paper, 2, sign=True),
            "–" if theirs["auc"] is None else f"{theirs['auc']:.3f}", spread(own.auc, 3),
            *(f"{own[f'precision@{k}'].mean():.2f}" for k in KS),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    tried = table.schedule.nunique()
    caption = f"**The schedule that validation baskets choose for each method, out of {tried}**"
    return "\n".join([caption, "", *lines])


def part_of(table: pd.DataFrame, data: str, method: str) -> pd.DataFrame:
    """Return the rows of a data set and a method, one for each seed."""
    return table[(table["data"] == data) & (table.method == method)].set_index("trial").sort_index()


def spread(values: pd.Series, digits: int, *, sign: bool = False) -> str:
    """Return a mean over seeds with its standard deviation."""
    return f"{fixed(values.mean(), digits, sign=sign)} ± {values.std():.{digits}f}"


def figure(table: pd.DataFrame) -> Any:
    """Draw MPR and AUC against fixed steps, a line for each method, published values as triangles."""
    from matplotlib.figure import Figure

    fixed = table[table.phase == "fixed"]
    drawing = Figure(figsize=(11, 6.2), layout="constrained")
    axes = drawing.subplots(2, len(NAMES), sharex=True)
    for column, data in enumerate(NAMES):
        printed = PRINTED[f"table-{data}"]
        for row, (metric, title) in enumerate((("mpr_paper", "MPR"), ("auc", "AUC"))):
            ax = axes[row, column]
            for method, color in COLORS.items():
                part = fixed[(fixed["data"] == data) & (fixed.method == method)].groupby("steps")[metric]
                steps = list(part.groups)
                ax.errorbar(steps, part.mean(), part.std(ddof=1), color=color, label=LABELS[method], marker="o", ms=3)
                published = printed.absolute(method, metric)
                if published is not None:
                    ax.plot(max(FIXED_STEPS) * 1.45, published, marker="<", color=color, ms=8, clip_on=False)
            ax.set_xscale("log", base=2)
            ax.set_xticks(FIXED_STEPS, [f"{steps:,}" for steps in FIXED_STEPS], fontsize=8)
            ax.minorticks_off()
            ax.set_ylabel(title)
            ax.grid(alpha=0.25)
            ax.spines[["top", "right"]].set_visible(False)
        axes[0, column].set_title(NAMES[data])
        axes[1, column].set_xlabel("steps of fixed size")
    drawing.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS), frameon=False
    )
    return drawing


if __name__ == "__main__":
    main()
