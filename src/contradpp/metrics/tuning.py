"""Model selection: scorers for scikit-learn, and a resumable study of settings (Optuna)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from contradpp._types import Array, StrPath, Values
from contradpp.data.baskets import Baskets, refuse_order_lines
from contradpp.errors import (
    ConvergenceError,
    DataError,
    MissingExtraError,
    ParameterError,
    check_choice,
)
from contradpp.learn.callbacks import Callback, Record
from contradpp.learn.params import params_from_flat
from contradpp.metrics.report import evaluate
from contradpp.models.lowrank import LowRankDPP
from contradpp.models.nonsymmetric import NonsymmetricDPP

if TYPE_CHECKING:
    from optuna import Study
    from optuna import Trial as Suggestions
    from optuna.trial import FrozenTrial

MODELS: dict[str, type[Any]] = {"lowrank": LowRankDPP, "nonsymmetric": NonsymmetricDPP}
METRICS = ("mpr", "p@10", "ndcg", "log-likelihood")
SHARE = 0.2  # of the baskets, for validation
N_VALIDATION = 1000  # baskets that choose among a few settings
SMALLEST = 2  # items of such a basket: the rest of one item is empty, and tells popularity only


class Trial(NamedTuple):
    """One setting, and its value, or None if it was cut short or failed."""

    number: int
    parameters: Values
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
    storage: StrPath | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
    max_iter: int = 100,
    watch: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Try settings until there are `trials` finished ones, and return all, the best first.

    A trial whose validation score falls behind the median of the others at the same round is cut
    short.

    Parameters
    ----------
    baskets : Baskets
        A fifth of them, chosen by `seed`, validates the settings; keep a test set apart.
    model : {"lowrank", "nonsymmetric"}
    objective : str
        The objective of the model.
    metric : {"mpr", "p@10", "ndcg", "log-likelihood"}
        The metric to maximize.
    trials : int
    storage : path, optional
        A study file: an interrupted study is resumed from it. It belongs to one choice of data,
        model, objective, metric and seed, which is checked.
    seed : int
    n_jobs : int, optional
        Threads; None for all cores.
    max_iter : int
        Rounds of training of a trial.
    watch : callable, optional
        Called with every finished trial.

    Returns
    -------
    list of Trial
    """
    optuna = require()
    check_choice("model", model, tuple(MODELS))
    check_choice("metric", metric, METRICS)
    if baskets.n_baskets < 10:
        raise DataError(f"tuning needs at least ten baskets, got {baskets.n_baskets}")
    train, validation = baskets.split(SHARE, random_state=seed)
    facts = {
        "data": f"{baskets.n_baskets}/{baskets.n_items}/{len(baskets.indices)}",
        "model": model,
        "objective": objective,
        "metric": metric,
        "seed": seed,
    }
    study = _open_study(optuna, storage, seed, facts)

    def run_trial(trial: Suggestions) -> float:
        estimator = MODELS[model](
            **params_from_flat(MODELS[model], suggest(trial, model, objective, train)),
            objective=objective,
            oversize="drop",
            max_iter=max_iter,
            n_jobs=n_jobs,
            random_state=seed,
            verbose=0,
        )
        try:
            estimator.fit(train, callbacks=[_Pruning(trial, optuna)])
        except ConvergenceError as error:
            raise optuna.TrialPruned(str(error)) from error
        return measured(estimator, validation, metric, n_jobs, smallest_rank(train))

    def report_trial(study: Study, trial: FrozenTrial) -> None:  # noqa: ARG001
        if watch is not None:
            watch(_plain(trial))

    n_finished = sum(trial.state.is_finished() for trial in study.trials)
    study.optimize(run_trial, n_trials=max(trials - n_finished, 0), callbacks=[report_trial])
    finished = [_plain(trial) for trial in study.trials if trial.state.is_finished()]
    worst = -float("inf")
    return sorted(
        finished, key=lambda trial: worst if trial.value is None else trial.value, reverse=True
    )


def scorer(metric: str = "ndcg") -> Callable[..., float]:
    """Make a scorer of held-out baskets for `GridSearchCV(scoring=...)` and the like.

    Parameters
    ----------
    metric : {"ndcg", "mpr", "p@10", "log-likelihood"}
        As in `evaluate`, of baskets of two or more items. In a basket larger than the model's rank
        no item is found. "log-likelihood" leaves such baskets out.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> import contradpp as cd
    >>> shop = cd.Baskets.from_lists([["tea", "milk"], ["pasta", "sauce"]] * 30)
    >>> grid = {"shrinkage": [0.0, 10.0]}
    >>> search = GridSearchCV(cd.baselines.ItemKNN(), grid, scoring=cd.scorer("ndcg"), cv=3)
    >>> float(search.fit(shop).best_score_)
    1.0
    """
    check_choice("metric", metric, METRICS)
    return partial(_score, metric=metric)


def _score(
    model: Any,
    baskets: Any,
    y: Any = None,  # noqa: ARG001
    *,
    metric: str,
    n_jobs: int | None = None,
) -> float:
    refuse_order_lines(baskets)
    likelihood = metric == "log-likelihood"
    options: Values = {"min_size": SMALLEST, "n_jobs": n_jobs, "likelihood": likelihood}
    report = evaluate(model, baskets, (10,), 0, check=False, **options)
    found = 1.0 if likelihood else 1.0 - report.n_skipped / report.n_baskets
    key = {"p@10": "precision@10", "log-likelihood": "log_likelihood"}.get(metric, metric)
    return found * float(report.metrics[key])


def validated(
    models: Sequence[Any],
    train: Baskets,
    seed: int = 0,
    *,
    most: int | None = None,
    n_jobs: int | None = None,
) -> list[float]:
    """Return the nDCG of each model on a tenth of the baskets.

    The models learn from the others, from at most `most` of them.
    """
    part, held = train.split(0.1, random_state=seed)
    part = part[:most]
    held = held.subset(held.sizes >= SMALLEST)[:N_VALIDATION]
    options: Values = {"n_jobs": n_jobs, "likelihood": False, "check": False}
    return [evaluate(model.fit(part), held, (10,), seed, **options).ndcg for model in models]


def smallest_rank(train: Baskets) -> int:
    """Return the smallest rank that is tried."""
    return max(min(int(train.sizes.max()), 10), 2)


def suggest(trial: Suggestions, model: str, objective: str, train: Baskets) -> Values:
    """Return a setting: the constructor's arguments that are searched over."""
    low = smallest_rank(train)
    high = max(min(2 * int(train.sizes.max()), 200), low)
    chosen = {
        "n_components": trial.suggest_int("n_components", low, high, log=True),
        "alpha": trial.suggest_float("alpha", 1e-3, 30.0, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
    }
    if model == "nonsymmetric":
        most = max(min(100, train.n_items - 1), 5)
        chosen["n_skew"] = trial.suggest_int("n_skew", 5, most, log=True)
        chosen["dropout"] = trial.suggest_float("dropout", 0.0, 0.7)
    elif objective in ("dynamic", "explicit", "product"):
        chosen["contrast"] = trial.suggest_float("contrast", 0.1, 1.5)
    return chosen


def measured(
    model: Any, validation: Baskets, metric: str, n_jobs: int | None, smallest: int
) -> float:
    """Return the metric on validation baskets, comparable between ranks; see `scorer`.

    The log-likelihood is measured on the baskets that even the smallest rank can hold.
    """
    if metric == "log-likelihood":
        validation = validation.subset(validation.sizes <= smallest)
    return _score(model, validation, metric=metric, n_jobs=n_jobs)


class _Pruning(Callback):
    """A callback that reports to the study, and ends a trial that falls behind."""

    def __init__(self, trial: Suggestions, optuna: ModuleType) -> None:
        self.trial = trial
        self.optuna = optuna

    def on_iteration(self, record: Record, best: Array) -> None:  # noqa: ARG002
        self.trial.report(record["validation"], record["iteration"])
        if self.trial.should_prune():
            raise self.optuna.TrialPruned


def require() -> ModuleType:
    """Return the optuna package, or raise `MissingExtraError`."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("tuning needs Optuna: pip install 'contradpp[tune]'") from error
    return optuna


def _open_study(optuna: Any, storage: StrPath | None, seed: int, facts: Values) -> Study:
    """Return a new study, or that of the file, which must have been made with the same facts."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = None
    if storage is not None:
        name = os.fspath(storage)
        try:
            file = JournalStorage(JournalFileBackend(name, lock_obj=JournalFileOpenLock(name)))
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{name} cannot be used as a study file: {error}") from error
    study: Study = optuna.create_study(
        study_name="contradpp",
        direction="maximize",
        storage=file,
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=2),
        load_if_exists=True,
    )
    for name, value in facts.items():
        known = study.user_attrs.get(name)
        if known is None:
            study.set_user_attr(name, value)
        elif known != value:
            raise ParameterError(
                f"the study file was made with {name}={known!r}, not {value!r}: name another file"
            )
    return study


def _plain(trial: FrozenTrial) -> Trial:
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    value = trial.value if trial.state.name == "COMPLETE" else None
    return Trial(trial.number, dict(trial.params), value, trial.state.name.lower(), seconds)
