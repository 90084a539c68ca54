"""Model selection: a study over rank, penalty, contrast and step size on a validation split, resumable (Optuna)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from contradpp.data.baskets import Baskets
from contradpp.errors import ConvergenceError, DataError, MissingExtraError, ParameterError
from contradpp.learn.callbacks import Array, Callback, Record
from contradpp.metrics.report import evaluate
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP

MODELS: dict[str, type[Any]] = {"lowrank": LowRankDPP, "nonsymmetric": NonsymmetricDPP}
METRICS = ("mpr", "p@10", "ndcg", "log-likelihood")
SHARE = 0.2  # of the baskets, for validation
N_VALIDATION = 1000  # baskets that choose among a few settings
SMALLEST = 2  # items of such a basket: one of one item gives a model nothing to go by but popularity


class Trial(NamedTuple):
    """One setting and what came of it: its value, or None if it was cut short or failed."""

    number: int
    parameters: dict[str, Any]
    value: float | None
    state: str
    seconds: float


def tune(
    baskets: Baskets,
    *,
    model: str = "lowrank",
    objective: str = "exact",
    metric: str = "mpr",
    trials: int = 20,
    storage: str | os.PathLike[str] | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    max_iter: int = 100,
    watch: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Try settings until there are `trials` finished ones, and return all, the best first.

    Parameters
    ----------
    baskets : Baskets
        A fifth of them, chosen by `seed`, judges the settings; keep a test set of your own apart.
    metric : {"mpr", "p@10", "ndcg", "log-likelihood"}
        What the best setting is best in.
    storage : path, optional
        A study file: a study that was stopped goes on where it stopped. It belongs to one choice of data, model,
        objective, metric and seed, which is checked.
    watch : callable, optional
        Told of every finished trial.

    A trial whose validation score falls behind the median of the others at the same round is cut short.
    """
    optuna = require()
    if model not in MODELS:
        raise ParameterError(f"model must be one of {', '.join(MODELS)}, got {model!r}")
    if metric not in METRICS:
        raise ParameterError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
    if baskets.n_baskets < 10:
        raise DataError(f"tuning needs at least ten baskets, got {baskets.n_baskets}")
    train, validation = baskets.split(SHARE, random_state=seed)
    facts = {"data": f"{baskets.n_baskets}/{baskets.n_items}/{len(baskets.indices)}", "model": model,
             "objective": objective, "metric": metric, "seed": seed}  # fmt: skip
    study = _open_study(optuna, storage, seed, facts)

    def judge(trial: Any) -> float:
        chosen = suggest(trial, model, objective, train)
        estimator = MODELS[model](
            **chosen, objective=objective, oversize="drop", max_iter=max_iter, n_jobs=n_jobs, random_state=seed
        )
        try:
            estimator.fit(train, callbacks=[_Pruning(trial, optuna)])
        except ConvergenceError as error:
            raise optuna.TrialPruned(str(error)) from error
        return measured(estimator, validation, metric, n_jobs, smallest_rank(train))

    def tell(study: Any, trial: Any) -> None:  # noqa: ARG001
        if watch is not None:
            watch(_plain(trial))

    done = sum(trial.state.is_finished() for trial in study.trials)
    study.optimize(judge, n_trials=max(trials - done, 0), callbacks=[tell])
    found = [_plain(trial) for trial in study.trials if trial.state.is_finished()]
    return sorted(found, key=lambda trial: -float("inf") if trial.value is None else trial.value, reverse=True)


def validated(
    models: Sequence[Any], train: Baskets, seed: int = 0, *, most: int | None = None, n_jobs: int | None = None
) -> list[float]:
    """The nDCG of each model on a tenth of the baskets, learned from the others, of which no more than `most`."""
    part, held = train.split(0.1, random_state=seed)
    part, held = part[:most], held.subset(held.sizes >= SMALLEST)[:N_VALIDATION]
    return [evaluate(model.fit(part), held, (10,), seed, n_jobs=n_jobs, likelihood=False).ndcg for model in models]


def smallest_rank(train: Baskets) -> int:
    """The smallest rank that is tried."""
    return max(min(int(train.sizes.max()), 10), 2)


def suggest(trial: Any, model: str, objective: str, train: Baskets) -> dict[str, Any]:
    """A setting: the constructor's arguments that are searched over."""
    low = smallest_rank(train)
    high = max(min(2 * int(train.sizes.max()), 200), low)
    chosen = {
        "n_components": trial.suggest_int("n_components", low, high, log=True),
        "alpha": trial.suggest_float("alpha", 1e-3, 30.0, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
    }
    if model == "nonsymmetric":
        chosen["n_skew"] = trial.suggest_int("n_skew", 5, max(min(100, train.n_items - 1), 5), log=True)
        chosen["dropout"] = trial.suggest_float("dropout", 0.0, 0.7)
    elif objective in ("dynamic", "explicit", "product"):
        chosen["contrast"] = trial.suggest_float("contrast", 0.1, 1.5)
    return chosen


def measured(model: Any, validation: Baskets, metric: str, n_jobs: int | None, smallest: int) -> float:
    """The metric on validation baskets, so that ranks can be compared.

    A missing item of a basket that is larger than the rank is not found. Such a basket has no log-likelihood: that is
    measured on the baskets that even the smallest rank can hold.
    """
    largest = smallest if metric == "log-likelihood" else model.n_components
    fits = validation.subset(validation.sizes <= largest)
    report = evaluate(model, fits, (10,), 0, min_size=2, n_jobs=n_jobs)
    if metric == "log-likelihood":
        return float(report.log_likelihood)
    values = {"mpr": report.mpr, "p@10": report.precision[10], "ndcg": report.ndcg}
    return float(values[metric]) * fits.n_baskets / max(validation.n_baskets, 1)


class _Pruning(Callback):
    """Tells the study how a trial goes, and ends one that falls behind."""

    def __init__(self, trial: Any, optuna: Any) -> None:
        self.trial = trial
        self.optuna = optuna

    def on_iteration(self, record: Record, best: Array) -> None:  # noqa: ARG002
        """See `Callback`."""
        self.trial.report(record["validation"], record["iteration"])
        if self.trial.should_prune():
            raise self.optuna.TrialPruned


def require() -> Any:
    """The optuna package, or `MissingExtraError`."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("tuning needs Optuna: pip install 'contradpp[tune]'") from error
    return optuna


def _open_study(optuna: Any, storage: str | os.PathLike[str] | None, seed: int, facts: dict[str, Any]) -> Any:
    """A new study, or the one of the file, which must have been made with the same facts."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name="contradpp",
        direction="maximize",
        storage=None if storage is None else _journal(optuna, os.fspath(storage)),
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=2),
        load_if_exists=True,
    )
    for name, value in facts.items():
        known = study.user_attrs.get(name)
        if known is None:
            study.set_user_attr(name, value)
        elif known != value:
            raise ParameterError(f"the study file was made with {name}={known!r}, not {value!r}: name another file")
    return study


def _journal(optuna: Any, name: str) -> Any:
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    try:
        return optuna.storages.JournalStorage(JournalFileBackend(name, lock_obj=JournalFileOpenLock(name)))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{name} cannot be used as a study file: {error}") from error


def _plain(trial: Any) -> Trial:
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    value = trial.value if trial.state.name == "COMPLETE" else None
    return Trial(trial.number, dict(trial.params), value, trial.state.name.lower(), seconds)
