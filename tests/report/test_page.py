"""The page as a whole: everything is on it, it loads nothing, and no name can break it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import contradpp as cd
from contradpp.experts.baselines import SHRINKAGES
from contradpp.metrics.report import Report
from contradpp.report.measured import BASELINE, examples, measure, neighbours
from contradpp.report.page import Subject, render

NASTY = '</script><img src="http://example.org/x">'


@pytest.fixture(scope="module")
def subject():
    shop = cd.Baskets.from_lists(
        [["tea", NASTY], ["coffee", "milk", "sugar"], ["tea", "sugar"], ["coffee", "milk"]] * 60
    )
    train, test = shop.split(0.2, random_state=0)
    model = cd.LowRankDPP(4, objective="exact", batch_size=20, max_iter=5, random_state=0).fit(train)
    measured = measure({"ours": model}, train, test)
    return Subject(model, "ours", "a <shop>", train, measured, examples(model, test), 1.5)


class Tags(HTMLParser):
    """Checks that every element is closed, and collects the attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_everything_is_on_the_page(subject):
    page = render(subject)
    for words in (
        "What was learned from a &lt;shop&gt;", "How good is it?", "popularity", "How it learned", "best: round",
        "What it suggests", "A map of the items", "Substitutes and complements", "The kernel", "n_components",
        "by the size of the basket", "by how popular the item is", "This kernel is symmetric",
    ):  # fmt: skip
        assert words in page, words


def test_it_is_well_formed_and_loads_nothing(subject):
    page = render(subject)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    names = {name for name, _ in tags.seen}
    assert not names & {"img", "link", "iframe", "base", "object", "embed"}
    assert not [attributes for _, attributes in tags.seen if attributes.keys() & {"src", "href", "action", "onload"}]
    assert "url(" not in page
    assert "@import" not in page


def test_the_script_gets_its_items(subject):
    (content,) = re.findall(r'<script type="application/json" id="items">(.*?)</script>', render(subject), re.DOTALL)
    items = json.loads(content)
    assert {entry["name"] for entry in items} == {"tea", NASTY, "coffee", "milk", "sugar"}
    assert all(entry["complements"] and set(entry["near"]) <= set(range(5)) for entry in items)


def test_it_is_the_same_every_time(subject):
    assert render(subject) == render(subject)


def test_a_model_without_measurement_or_history(subject):
    model = cd.LowRankDPP.from_factors(subject.model.item_factors_, items=subject.model.items_)
    model.history_, model.n_iter_ = [], 0
    page = render(Subject(model, "bare", "shop", subject.train, None, [], 0.0))
    assert "no measurement" in page
    assert "How it learned" not in page


def test_a_model_whose_normaliser_is_an_estimate_says_so(subject, monkeypatch):
    """Beyond some size the log-likelihood of a nonsymmetric model has a standard error, which stands beside it."""
    tea = subject.train.items.code("tea")
    skew = np.zeros((5, 5))
    skew[tea, (tea + 1) % 5], skew[(tea + 1) % 5, tea] = 0.5, -0.5
    model = cd.NonsymmetricDPP.from_factors(subject.model.item_factors_, S=skew, items=subject.train.items)
    model.history_, model.n_iter_ = [], 0
    exact = measure({"large": model}, subject.train, subject.train).reports["large"].log_likelihood
    monkeypatch.setattr("contradpp.dpp.whole.MOST_DENSE", 1)
    model = cd.NonsymmetricDPP.from_factors(subject.model.item_factors_, S=skew, items=subject.train.items)
    model.history_, model.n_iter_ = [], 0
    monkeypatch.setattr(Report, "plus_minus", lambda self, _="": " ± 0.03")
    measured = measure({"large": model}, subject.train, subject.train)
    assert measured.reports["large"].log_likelihood == pytest.approx(exact, abs=0.1)
    page = render(Subject(model, "large", "shop", subject.train, measured, examples(model, subject.train), 0.0))
    assert f"{measured.reports['large'].log_likelihood:.2f} ± 0.03</td>" in page
    assert ">nan<" not in page


def test_verdicts_claim_no_more_than_the_baskets_show(subject):
    shop = cd.Baskets.from_lists([[f"a{n}", f"b{n}"] for n in range(20)] * 10)
    good = measure({"good": _Fixed(cd.baselines.ItemKNN().fit(shop))}, shop, shop)
    assert good.verdict("good").startswith("Better than popularity; Not clearly better than item neighbours.")
    same = measure({"same": _Fixed(cd.baselines.Popularity().fit(shop))}, shop, shop)
    assert same.verdict("same").startswith("Not clearly better than popularity; Worse than item neighbours.")
    assert same.gain("same") == (0.0, 0.0)
    assert subject.measured.n_baskets == subject.measured.reports[BASELINE].n_baskets


def test_item_neighbours_are_compared_at_their_best():
    shop = cd.datasets.load("grocer", n_baskets=1_000, random_state=0)
    part, held = shop.subset(shop.sizes >= 2).split(0.1, random_state=0)
    ndcg = {one: cd.evaluate(cd.baselines.ItemKNN(shrinkage=one).fit(part), held).ndcg for one in SHRINKAGES}
    best = neighbours(shop).shrinkage
    assert best == max(ndcg, key=ndcg.get) != cd.baselines.ItemKNN().shrinkage
    assert neighbours(shop[:50]).shrinkage == cd.baselines.ItemKNN().shrinkage  # too few to choose by


class _Fixed:
    """A baseline that evaluation knows nothing of but its answers."""

    def __init__(self, model) -> None:
        self.items_ = model.items_
        self.predict_next = model.predict_next


def test_examples_hide_an_item_of_a_held_out_basket(subject):
    for example in subject.examples:
        assert example.hidden not in example.basket
        assert not set(example.basket) & set(example.suggestions)
        assert example.found == (example.hidden in example.suggestions)
    assert len(subject.examples) == 5


def test_without_a_basket_to_ask_about_there_is_nothing_to_measure(subject):
    single = cd.Baskets.from_lists([["tea"]], items=subject.model.items_)
    assert measure({"ours": subject.model}, subject.train, single) is None
    assert examples(subject.model, single) == []


# -- In a browser --------------------------------------------------------------------------------

COLLISIONS = """() => {
    const boxes = [...document.querySelectorAll('svg.map .name')].map((one) => one.getBoundingClientRect());
    const shown = boxes.filter((box) => box.width > 0);
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return [shown.length, shown.filter((a) => shown.some((b) => a !== b && meet(a, b))).length];
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_names_on_the_map_do_not_touch_and_the_page_fits_the_screen(browser, tmp_path, width):
    products = [f"Product WITH a wide name {n}" for n in range(150)]
    rng = np.random.default_rng(0)
    shop = cd.Baskets.from_lists([[products[i] for i in rng.choice(150, 4, replace=False)] for _ in range(400)])
    model = cd.LowRankDPP.from_factors(rng.normal(size=(shop.n_items, 8)), items=shop.items)
    model.history_, model.n_iter_ = [{"iteration": n, "validation": -n, "objective": n} for n in (1, 2)], 2
    measured = measure({"ours": model}, shop, shop)
    page = render(Subject(model, "ours", "orders_of_this_shop.parquet", shop, measured, examples(model, shop), 1.0))
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 860})
    seen = context.new_page()
    seen.goto((tmp_path / "report.html").as_uri())
    assert seen.evaluate("document.documentElement.scrollWidth") <= width
    shown, touching = seen.evaluate(COLLISIONS)
    assert shown >= 5
    assert touching == 0
    assert seen.evaluate("document.querySelector('svg.map').getBoundingClientRect().width") >= min(600, width - 80)
    context.close()
