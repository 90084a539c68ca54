"""The page in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import contradpp as cd
from contradpp.data.feedback import read_feedback
from contradpp.serve.options import ServiceSettings
from serve.live import other_shop, running

sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need Playwright (extra dev)")
expect = sync_api.expect
expect.set_options(timeout=30_000)  # milliseconds: a busy machine takes its time


@pytest.fixture
def visit(browser) -> Iterator[object]:
    """Open the page of a server; at the end, no script has failed and nothing was asked of anyone else."""
    opened = []

    def open_page(server, *, width: int = 1280, scheme: str = "light", faults: bool = False, path: str = "/"):
        context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console", lambda message: wrong.append(message.text) if message.type == "error" and not faults else None
        )
        page.on("request", lambda one: wrong.append(one.url) if not one.url.startswith(server.url) else None)
        page.goto(server.url + path)
        opened.append((context, wrong))
        return page

    yield open_page
    for context, wrong in opened:
        context.close()
        assert wrong == []


def search(page, words: str) -> None:
    page.get_by_role("combobox").fill(words)


def add(page, words: str) -> None:
    search(page, words)
    page.keyboard.press("Enter")


def chips(page) -> list[str]:
    return page.locator("#chips .chip > span").all_inner_texts()


def by_chance(items, shares) -> list[str]:
    """The items of a slate, the likeliest first, as the page shows them."""
    return [str(items[place]) for place in np.argsort(-shares, kind="stable")]


def suggested(page) -> list[str]:
    return page.locator(".suggestion-name").all_inner_texts()


def test_search_add_and_remove(live, visit, shop_model):
    page = visit(live)
    expect(page.locator(".suggestion")).to_have_count(10)
    before = suggested(page)
    _, shares = shop_model.recommend([], N=1)
    expect(page.locator(".probability").first).to_have_text(f"{100 * shares[0]:.1f} %")
    search(page, "spagh")
    page.get_by_role("option", name="spaghetti", exact=True).click()
    expect(page.locator("#chips .chip")).to_have_text([re.compile("spaghetti")])
    expect(page.locator("#basket-count")).to_have_text("1 item")
    expected = by_chance(*shop_model.slate(["spaghetti"], N=10))
    expect(page.locator(".suggestion-name")).to_have_text(expected)
    assert suggested(page) != before
    page.get_by_role("button", name="Remove spaghetti").click()
    expect(page.locator("#chips .chip")).to_have_count(0)
    expect(page.locator(".suggestion-name")).to_have_text(before)
    expect(page.locator("#basket-empty")).to_be_visible()


def test_the_keyboard_alone_is_enough(live, visit):
    page = visit(live)
    box = page.get_by_role("combobox")
    box.focus()
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.type("milk")
    expect(page.get_by_role("option").first).to_contain_text("milk")
    page.keyboard.press("ArrowDown")
    second = page.get_by_role("option").nth(1)
    expect(second).to_have_attribute("aria-selected", "true")
    name = second.locator("span").first.inner_text()
    expect(box).to_have_attribute("aria-activedescendant", "hit-1")
    page.keyboard.press("Enter")
    expect(page.locator("#chips .chip > span")).to_have_text([name])
    page.keyboard.type("limes")
    page.keyboard.press("Enter")  # without waiting for the list
    expect(page.locator("#chips .chip > span")).to_have_text([name, "limes"])
    page.keyboard.press("Backspace")
    expect(page.locator("#chips .chip > span")).to_have_text([name])
    page.keyboard.type("x")
    page.keyboard.press("Escape")
    expect(box).to_have_attribute("aria-expanded", "false")


def test_a_search_without_hits_says_so(live, visit):
    page = visit(live)
    search(page, "xyzzy")
    expect(page.locator("#no-hits")).to_have_text("Nothing in the catalogue matches “xyzzy”.")
    page.keyboard.press("Enter")
    assert chips(page) == []


def test_accept_and_reject_send_feedback(start, visit):
    server = start()
    page = visit(server)
    expect(page.locator(".suggestion")).to_have_count(10)
    first, second = suggested(page)[:2]
    page.get_by_role("button", name=f"Accept {first}", exact=True).click()
    expect(page.locator("#chips .chip > span")).to_have_text([first])
    expect(page.get_by_text(f"Noted: {first} fits.")).to_be_visible()
    expect(page.locator(".suggestion-name", has_text=re.compile(f"^{re.escape(first)}$"))).to_have_count(0)
    page.get_by_role("button", name=f"Reject {second}", exact=True).click()
    expect(page.get_by_text(f"Noted: {second} does not fit.")).to_be_visible()
    expect(page.locator("#rejected-text")).to_contain_text(second)
    assert second not in suggested(page)
    kept = read_feedback(server.feedback_path)
    assert (kept.positives, kept.negatives) == ([[first]], [[first, second]])
    page.get_by_role("button", name="Show again").click()
    expect(page.locator(".suggestion-name", has_text=re.compile(f"^{re.escape(second)}$"))).to_have_count(1)


def test_a_token_is_asked_for_when_the_server_wants_one(start, visit):
    server = start(token="sesame")
    page = visit(server, faults=True)
    page.locator(".act.accept").first.click()
    page.get_by_role("textbox", name="Token").fill("sesame")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".toast")).to_contain_text("Noted")
    assert len(read_feedback(server.feedback_path).positives) == 1


def test_feedback_that_is_not_kept_is_told(start, visit):
    server = start(feedback="/dev/full" if Path("/dev/full").exists() else None)
    page = visit(server, faults=True)
    page.locator(".act.accept").first.click()
    if Path("/dev/full").exists():
        expect(page.locator(".toast.bad")).to_contain_text("Not stored")
    expect(page.locator("#chips .chip")).to_have_count(1)


def test_the_variety_control_changes_the_suggestions(live, visit, shop_model):
    page = visit(live)
    add(page, "spaghetti")
    expect(page.locator("#chips .chip")).to_have_count(1)
    slider = page.get_by_role("slider", name="Variety")
    expect(slider).to_have_value("50")
    expect(slider).to_have_attribute("aria-valuetext", "the model's own, 50 of 100")
    slider.focus()
    page.keyboard.press("Home")
    alike, _ = shop_model.recommend(["spaghetti"], N=10)
    expect(page.locator(".suggestion-name")).to_have_text(alike.tolist())
    expect(slider).to_have_attribute("aria-valuetext", "more of the same")
    page.keyboard.press("End")
    varied = by_chance(*shop_model.slate(["spaghetti"], N=10, diversity=1.0))
    expect(page.locator(".suggestion-name")).to_have_text(varied)
    expect(slider).to_have_attribute("aria-valuetext", "variety only")
    assert varied != alike.tolist()
    with page.expect_request("**/v1/slate") as request:
        page.keyboard.press("ArrowLeft")
    assert request.value.post_data_json["diversity"] == 0.95
    slider = page.get_by_role("slider", name="Most likely or most specific")
    slider.focus()
    with page.expect_request("**/v1/slate") as request:
        page.keyboard.press("End")
    assert request.value.post_data_json["rank_by"] == 1


def test_suggestions_say_why(start, visit):
    lists = [["tea", "milk"], ["tea", "milk", "sugar"], ["pasta", "sauce"], ["pasta", "sauce", "cheese"]] * 20
    page = visit(start(cd.ConditionalDPP(random_state=0, n_jobs=1).fit(lists)))
    add(page, "pasta")
    expect(page.locator(".suggestion").first).to_contain_text("4.9 times its usual share")
    add(page, "cheese")
    expect(page.locator(".suggestion").first).to_contain_text("because of")


def test_a_surprise_can_be_taken(live, visit):
    page = visit(live)
    add(page, "limes")
    expect(page.locator("#chips .chip")).to_have_count(1)
    page.get_by_role("button", name="Surprise me").click()
    expect(page.locator("#surprise-items .chip")).to_have_count(4)
    new = page.locator("#surprise-items .chip").all_inner_texts()
    page.get_by_role("button", name="Take all").click()
    expect(page.locator("#chips .chip > span")).to_have_text(["limes", *new])
    expect(page.locator("#surprise-card")).to_be_hidden()
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#chips .chip")).to_have_count(0)


def test_a_full_basket_says_that_nothing_can_join(live, visit):
    page = visit(live)
    for number in range(1, 13):  # the model's rank
        expect(page.locator("#suggestions")).not_to_have_attribute("aria-busy", "true")  # else it is the last one's
        expect(page.locator(".suggestion").first).to_be_visible()
        page.locator(".act.accept").first.click()
        expect(page.locator("#chips .chip")).to_have_count(number)
    expect(page.locator("#suggestions-empty")).to_contain_text("Nothing more can be added")


def test_the_map_shows_basket_and_suggestions_and_adds_what_is_pressed(live, visit):
    page = visit(live)
    expect(page.locator("#map circle.suggested")).to_have_count(10)
    expect(page.locator("#map circle")).not_to_have_count(10)
    page.locator("#map circle:not(.suggested)").last.dispatch_event("click")
    expect(page.locator("#map circle.in-basket")).to_have_count(1)
    expect(page.locator("#chips .chip")).to_have_count(1)


def test_a_server_that_goes_is_noticed_and_one_that_returns_too(tmp_path, shop_model, visit):
    shop_model.save(tmp_path / "model")
    settings = ServiceSettings(model=str(tmp_path / "model"))
    with running(settings) as server:
        page = visit(server, faults=True)
        expect(page.locator(".suggestion")).to_have_count(10)
        add(page, "limes")
        expect(page.locator("#chips .chip")).to_have_count(1)
    search(page, "parmesan")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    with running(settings, port=int(server.url.split(":")[-1])):
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.get_by_text("The server is back.").first).to_be_visible()
        expect(page.locator("#chips .chip > span")).to_have_text(["limes"])
        add(page, "parmesan")
        expect(page.locator("#chips .chip > span")).to_have_text(["limes", "parmesan"])


def test_a_new_model_is_noticed(start, visit):
    server = start()
    page = visit(server)
    expect(page.locator("#model-line")).to_contain_text("315 items")
    other_shop().save(server.model_path)
    expect(page.locator("#model-line")).to_contain_text("30 items")
    expect(page.locator(".suggestion-name").first).to_have_text(re.compile(r"^p\d+$"))


def test_names_are_text_never_markup(start, visit):
    evil = '<img src=x onerror="document.title=1">'
    server = start(cd.LowRankDPP.from_factors(np.eye(3), items=[evil, "b", "c"]))
    page = visit(server)
    search(page, "<img")
    expect(page.get_by_role("option")).to_have_text([evil])
    page.keyboard.press("Enter")
    expect(page.locator("#chips .chip > span")).to_have_text([evil])
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (320, "dark")])
def test_it_fits_the_screen_and_the_colors_asked_for(live, visit, width, scheme):
    page = visit(live, width=width, scheme=scheme)
    for words in ("spaghetti", "parmesan"):
        search(page, words)
        expect(page.get_by_role("option").first).to_contain_text(words)
        page.keyboard.press("Enter")
    expect(page.locator("#map circle.in-basket")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.locator("button:visible").evaluate_all(
        "all => all.filter(one => one.getBoundingClientRect().height < 24).map(one => one.textContent)"
    )
    assert small == []
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 244, 239)"
    assert light is (scheme == "light")


def test_the_toggle_overrules_the_system_and_is_kept(live, visit):
    page = visit(live, scheme="dark")
    toggle = page.get_by_role("button", name="Colors")
    toggle.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    expect(page.get_by_role("button", name="Colors: light")).to_be_visible()


def test_the_interface_is_described(live, visit):
    page = visit(live, path="/docs")
    expect(page.get_by_role("heading", name="/v1/recommend")).to_be_visible()
    expect(page.locator("section.card")).to_have_count(15)
