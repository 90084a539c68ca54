"""The chapter on slates: ways to choose ten suggestions, and a picture of relevance against variety."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contradpp.research import figures
from contradpp.research.slates import SHOWN
from contradpp.research.tables import Chapter, Collected, Plot, Table, name_of, number

SETUP = (
    "80 % of the baskets for training, a tenth of them for choosing settings, 20 % for the test, seed 0. Half of every "
    "test basket is hidden, and ten items are suggested given the rest. All ways choose from what one ConditionalDPP "
    "holds relevant: ours from all items, the others from its 100 best. 'As learned' is what the model chose by itself "
    "when it was fitted; the settings of all other rows have the most variety (categories hit, else distance by "
    "baskets) on the validation baskets at 99 % of the recall of the top 10. Co-occurrence: 32 dimensions of the "
    "positive mutual information of items. Intervals are 95 %, paired."
)


def slates(collected: Collected) -> Chapter:
    """Ways to choose ten suggestions: what they have of the hidden half, and how varied they are."""
    found = {task.data: result for task, result in collected.results.items()}
    tables: list[Table] = []
    findings: list[str] = []
    for data, result in found.items():
        ways, n = result["ways"], result["n_baskets"]
        shown = [name for name in SHOWN if ways["Top 10"]["metrics"][name] is not None]
        rows = tuple(
            (name, _setting(way), *(number(way["metrics"][m], m) for m in shown)) for name, way in ways.items()
        )
        title = f"{data}: {n:,} baskets of {result['least']} or more items, {result['n_items']:,} items"
        tables.append(Table(title, ("way", "diversity", *map(name_of, shown)), rows))
        gained = [name for name in shown if name in ways["Top 10"]["gains"]]
        differences = tuple(
            (name, *(_interval(way["gains"][m]) for m in gained)) for name, way in ways.items() if name != "Top 10"
        )
        tables.append(Table(f"{data}: difference from the top 10", ("way", *map(name_of, gained)), differences))
        findings += _slate_findings(data, result)
    return Chapter(
        target="slates",
        title="Slates: variety without loss",
        setup=SETUP,
        tables=tuple(tables),
        findings=tuple(findings),
        plots=(
            Plot("pareto", "Relevance against variety on the test baskets, a line for every way over its settings.",
                 lambda: figures.pareto({data: (one["curves"], name_of(one["goal"])) for data, one in found.items()})),
        ),
        data=found,
    )  # fmt: skip


def _setting(way: dict[str, Any]) -> str:
    return "" if way["setting"] is None else f"{way['setting']:g}"


def _interval(gain: Sequence[float]) -> str:
    value, low, high = (f"{bound:+.4f}".replace("-", "−") for bound in gain)
    return f"{value} [{low}, {high}]"


def _slate_findings(data: str, result: dict[str, Any]) -> list[str]:
    """Against the goals: nothing lost, more reached; more than others at 99 % of the recall; a likelier hidden half."""
    ways, goal, law = result["ways"], result["goal"], result["likelihood"]
    learned, named = ways["ours, as learned"]["gains"], name_of(goal)
    parts = [
        f"{name_of(metric)} {_interval(learned[metric])}: {_above(learned[metric])}"
        for metric in ("hit", "categories_hit")
        if learned[metric][0] is not None
    ]
    lost = "below" if learned["recall"][2] < 0 else "not below"
    others = {name: way["metrics"][goal] for name, way in ways.items() if not name.startswith(("ours", "Top"))}
    best, ours = max(others, key=lambda name: others[name]), ways["ours"]["metrics"][goal]
    beside = "more than" if ours > others[best] else "less than"
    clear = "above" if law["low"] > 0 else "below" if law["high"] < 0 else "not told from"
    return [
        f"{data}, as learned ({_mix(result['settings'])}): recall {_interval(learned['recall'])}, {lost} the top 10; "
        + "; ".join(parts) + ".",
        f"{data}, at 99 % of the recall on validation: {named} {ours:.4f}, {beside} the best of the others, "
        f"{best}, {others[best]:.4f}.",
        f"{data}: the hidden half's log-likelihood, learned for it ({_mix(law['settings'])}), is "
        f"{_interval((law['gain'], law['low'], law['high']))} beside Φ = I ({law['n_baskets']} baskets): {clear} 0.",
    ]  # fmt: skip


def _above(gain: Sequence[float]) -> str:
    return "above" if gain[1] > 0 else "below" if gain[2] < 0 else "no difference"


def _mix(settings: dict[str, float] | None) -> str:
    if settings is None:
        return "too few baskets: the kernel"
    weights = [f"{name} {value:g}" for name, value in settings.items() if value and name != "diversity"]
    return f"{', '.join(weights) or 'nothing alike'}, diversity {settings['diversity']:g}"
