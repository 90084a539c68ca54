"""The page as a whole: everything is on it, it loads nothing, and no name can break it."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import contradpp as cd
from contradpp.cli import demo
from contradpp.errors import MissingExtraError
from contradpp.experts.item_knn import SHRINKAGES
from contradpp.metrics.report import Report
from contradpp.report.evaluation import assessment, compare_with_baselines, draw_examples, tuned_item_knn
from contradpp.report.page import (
    Subject,
    complements,
    curve,
    popular,
    render,
    short,
    survey,
    ticks,
)  # fmt: skip

NASTY = '</script><img src="http://example.org/x">'


@pytest.fixture(scope="module")
def subject():
    shop = cd.Baskets.from_lists(
        [["tea", NASTY], ["coffee", "milk", "sugar"], ["tea", "sugar"], ["coffee", "milk"]] * 60
    )
    train, test = shop.split(0.2, random_state=0)
    model = cd.LowRankDPP(4, objective="exact", optimizer=cd.optimizers.Adam(batch_size=20), max_iter=5, random_state=0)
    model.fit(train)
    comparison = compare_with_baselines({"ours": model}, train, test)
    return Subject(model, "ours", "a <shop>", train, comparison, draw_examples(model, test), 1.5)


def test_kinds_of_baskets_are_shown_and_color_the_map(subject):
    lists = [["tea", "milk"], ["tea", "milk", "jam"], ["beer", "nuts"], ["beer", "nuts", "ice"]] * 60
    kernel = cd.MixtureDPP(cd.NonsymmetricDPP(0, 0), 2, smoothing=1.0)
    train = cd.Baskets.from_lists(lists)
    model = kernel.fit(train)
    items = survey(model, train)
    assert items.n_kinds == len(items.kinds) == 2
    breakfast = [items.clusters[items.names.index(name)] for name in ("tea", "milk", "jam")]
    party = [items.clusters[items.names.index(name)] for name in ("beer", "nuts", "ice")]
    assert len(set(breakfast)) == len(set(party)) == 1
    assert breakfast != party
    share, names = items.kinds[breakfast[0]]
    assert set(names[:3]) == {"tea", "milk", "jam"}
    assert share == pytest.approx(0.5, abs=0.05)
    page = render(Subject(model, "ours", "a shop", train, None, (), 1.0))
    assert "Kinds of baskets" in page
    assert "Kinds of baskets" not in render(subject)


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
        "A model of a &lt;shop&gt;", "How good is it?", "popularity", "Training", "best: round",
        "Suggestions", "A map of the items", "Substitutes and complements", "n_components",
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


def test_without_the_extra_the_message_names_it_and_the_demo_goes_on(subject, monkeypatch, tmp_path, capfd):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"contradpp\[report\]"):
        render(subject)
    assert not demo.write_page(tmp_path / "report.html", subject)
    assert "contradpp[report]" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_model_without_measurement_or_history(subject):
    model = cd.LowRankDPP.from_factors(subject.model.item_factors_, items=subject.model.items_)
    model.history_, model.n_iter_ = [], 0
    page = render(Subject(model, "bare", "shop", subject.train, None, [], 0.0))
    assert "no measurement" in page
    assert "Training</h2>" not in page


def test_a_model_whose_normalizer_is_an_estimate_says_so(subject, monkeypatch):
    """Beyond some size the log-likelihood of a nonsymmetric model has a standard error, which stands beside it."""
    tea = subject.train.items.code("tea")
    skew = np.zeros((5, 5))
    skew[tea, (tea + 1) % 5], skew[(tea + 1) % 5, tea] = 0.5, -0.5
    model = cd.NonsymmetricDPP.from_factors(subject.model.item_factors_, S=skew, items=subject.train.items)
    model.history_, model.n_iter_ = [], 0
    exact = compare_with_baselines({"large": model}, subject.train, subject.train).reports["large"].log_likelihood
    monkeypatch.setattr("contradpp.dpp.normalizer.MAX_DENSE_ITEMS", 1)
    model = cd.NonsymmetricDPP.from_factors(subject.model.item_factors_, S=skew, items=subject.train.items)
    model.history_, model.n_iter_ = [], 0
    monkeypatch.setattr(Report, "plus_minus", lambda self, _="": " ± 0.03")
    comparison = compare_with_baselines({"large": model}, subject.train, subject.train)
    assert comparison.reports["large"].log_likelihood == pytest.approx(exact, abs=0.1)
    page = render(Subject(model, "large", "shop", subject.train, comparison, draw_examples(model, subject.train), 0.0))
    assert f"{comparison.reports['large'].log_likelihood:.2f} ± 0.03</td>" in page
    assert ">nan<" not in page


def test_verdicts_claim_no_more_than_the_baskets_show():
    shop = cd.Baskets.from_lists([[f"a{n}", f"b{n}"] for n in range(20)] * 10)
    good = compare_with_baselines({"good": _Fixed(cd.baselines.ItemKNN().fit(shop))}, shop, shop)
    assert assessment(good, "good").startswith("Better than popularity; not clearly better than item neighbors.")
    same = compare_with_baselines({"same": _Fixed(cd.baselines.Popularity().fit(shop))}, shop, shop)
    assert assessment(same, "same").startswith("Not clearly better than popularity; worse than item neighbors.")


def test_item_neighbors_are_compared_at_their_best():
    shop = cd.datasets.load("grocer", n_baskets=1_000, random_state=0)
    part, held = shop.subset(shop.sizes >= 2).split(0.1, random_state=0)
    ndcg = {one: cd.evaluate(cd.baselines.ItemKNN(shrinkage=one).fit(part), held).ndcg for one in SHRINKAGES}
    best = tuned_item_knn(shop).shrinkage
    assert best == max(ndcg, key=ndcg.get) != cd.baselines.ItemKNN().shrinkage
    assert tuned_item_knn(shop[:50]).shrinkage == cd.baselines.ItemKNN().shrinkage  # too few to choose by


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
    assert compare_with_baselines({"ours": subject.model}, subject.train, single) is None
    assert draw_examples(subject.model, single) == []


# -- Items -------------------------------------------------------------------------------------------


def test_complements_are_ordered_by_what_they_gain(model):
    usual = model.predict_next([])
    found = complements(model, 1, 3, usual=usual)
    gains = model.predict_next([1]) - usual
    assert [item for item, _ in found] == np.argsort(-gains)[:3].tolist()
    assert found[0][1] == pytest.approx(model.predict_next([1])[found[0][0]] / usual[found[0][0]])


def test_a_model_that_knows_complements_is_asked(model, monkeypatch):
    monkeypatch.setattr(type(model), "complements", lambda *_, **__: (np.array([5, 3]), np.ones(2)), raising=False)
    found = complements(model, 1, 2, usual=model.predict_next([]))
    assert [item for item, _ in found] == [5, 3]


def test_a_conditional_model_of_a_symmetric_kernel_has_a_page_too():
    train = cd.Baskets.from_lists([["tea", "milk"], ["tea", "milk", "sugar"], ["pasta", "sauce"]] * 30)
    model = cd.ConditionalDPP(cd.LowRankDPP(3, max_iter=2), random_state=0, n_jobs=1).fit(train)
    assert "A model of shop" in render(Subject(model, "c", "shop", train, None, [], 1.0))


def test_popular_items_occur():
    shop = cd.Baskets.from_lists([["b"], ["a", "b"]], items=["a", "b", "never"])
    assert popular(shop, 5).tolist() == [1, 0]


def test_what_was_rarely_together_is_no_complement():
    """Lemons and hair color, sold together twice, stood first."""
    rng = np.random.default_rng(0)
    lists = [["tea", "milk"]] * 40 + [["lemons", "hair color"]] * 2
    lists += [[str(item)] for item in rng.choice(["tea", "milk", "lemons", "bread"], size=60)]
    train = cd.Baskets.from_lists(lists)
    found = survey(cd.NonsymmetricDPP(2, 3, random_state=0).fit(train), train)
    by_name = dict(zip(found.names, found.complements, strict=True))
    assert by_name["lemons"] == []
    assert [(name, n) for name, _, n in by_name["tea"]][:1] == [("milk", 40)]
    assert ", in 40" in json.dumps(found.entries)


def test_substitutes_are_clear_of_chance():
    """Items that share a basket by chance have none, and the page says so."""
    rng = np.random.default_rng(0)
    lists = [[f"item {i}" for i in rng.choice(8, 3, replace=False)] for _ in range(400)]
    lists += [["green tea" if rng.random() < 0.5 else "black tea", "milk"] for _ in range(400)]
    train = cd.Baskets.from_lists(lists).with_names({"green tea": "Tea, green", "black tea": "Tea, black"})
    model = cd.LowRankDPP.from_factors(rng.normal(size=(train.n_items, 4)), items=train.items)
    found = survey(model, train)
    by_name = dict(zip(found.names, found.substitutes, strict=True))
    assert [name for name, *_ in by_name["Tea, green"]] == ["Tea, black"]
    assert not any(by_name[f"item {i}"] for i in range(8))
    trained = cd.LowRankDPP(3, max_iter=1, random_state=0).fit(train)
    assert "<small>none found</small>" in render(Subject(trained, "ours", "shop", train, None, [], 1.0))


# -- Charts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-6.7, -6.5), (0, 23.7), (3, 97), (1, 2)])
def test_ticks_are_few_round_and_inside(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 9
    assert all(low - 1e-9 <= t <= high + 1e-9 for t in found)
    assert ticks(2.0, 2.0) == [2.0]


def test_text_is_cut():
    assert [short("abcdef", 4), short("abc", 4)] == ["abc…", "abc"]


def test_the_best_round_is_marked_and_nan_is_left_out():
    history = [{"iteration": i, "validation": v} for i, v in ((1, -3.0), (2, -1.0), (3, float("nan")), (4, -2.0))]
    drawn = curve(history, "validation")
    assert [number for *_, number, _ in drawn["points"]] == [1, 2, 4]
    assert drawn["points"][drawn["best"]][2] == 2
    assert curve(history[2:3], "validation") is None
    assert len(curve(history[:1], "validation")["points"]) == 1


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
    comparison = compare_with_baselines({"ours": model}, shop, shop)
    page = render(
        Subject(model, "ours", "orders_of_this_shop.parquet", shop, comparison, draw_examples(model, shop), 1.0)
    )
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
