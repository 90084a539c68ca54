"""`contradpp fit`: baskets in, a model file out, and how it compares with popularity."""

from __future__ import annotations

import json

import click

import contradpp as cd
from contradpp.cli.inputs import baskets_from
from contradpp.learn.settings import OBJECTIVES


@click.command()
@click.argument("data")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The model file to write.")
@click.option("--rank", type=click.IntRange(1), help="Columns of V; the size of the largest basket if left out.")
@click.option("--objective", type=click.Choice(OBJECTIVES), default="dynamic", show_default=True)
@click.option("--contrast", default="1.0", show_default=True, help="Weight of the negatives: a number, or 'counted'.")
@click.option("--alpha", default=1.0, show_default=True, help="Strength of the popularity penalty.")
@click.option("--max-iter", default=100, show_default=True, help="The most rounds over the data.")
@click.option("--seed", default=0, show_default=True, help="Seed of split, start and training.")
@click.option("--jobs", type=int, help="Threads; all cores if left out.")
@click.option("--basket", help="Column with the basket's id, in long data.")
@click.option("--item", help="Column with the item's id, in long data.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def fit(
    data: str, output: str, rank: int | None, objective: str, contrast: str, alpha: float, max_iter: int, seed: int,
    jobs: int | None, basket: str | None, item: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Learn a model from DATA, a file of baskets or the name of a data set.

    A tenth of the baskets is held out to measure the model beside popularity.
    """
    baskets = baskets_from(data, basket=basket, item=item)
    train, test = baskets.split(0.1, random_state=seed)
    components = rank or int(baskets.sizes.max())
    model = cd.LowRankDPP(
        components, objective=objective, contrast=_contrast(contrast), alpha=alpha, max_iter=max_iter,
        oversize="drop", n_jobs=jobs, random_state=seed, verbose=1,
    ).fit(train)  # fmt: skip
    model.save(output)
    fits = test.subset(test.sizes <= components)  # larger ones are impossible for the model, and would not compare
    found = {
        name: cd.evaluate(one, fits, ks=(10,), min_size=2)
        for name, one in (("popularity", cd.baselines.Popularity().fit(train)), (f"{objective} DPP", model))
    }
    if as_json:
        reports = {name: report.as_dict() for name, report in found.items()}
        click.echo(json.dumps({"model": output, "rounds": model.n_iter_, "n_components": components, **reports}))
        return
    click.echo(f"{baskets!r}: learned from {train.n_baskets:,}, {model.n_iter_} rounds, rank {components}.")
    click.echo(f"{'on held-out baskets':<22}{'MPR':>8}{'p@10':>8}{'log-likelihood':>16}")
    for name, report in found.items():
        click.echo(f"{name:<22}{report.mpr_fair:>8.2f}{report.precision[10]:>8.2f}{report.log_likelihood:>16.2f}")
    click.echo(f"Wrote {output}. Try: contradpp recommend {output} {train.items[int(train.item_counts.argmax())]!r}")


def _contrast(text: str) -> float | str:
    try:
        return text if text == "counted" else float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a number nor 'counted'", param_hint="--contrast") from None
