"""Answers in a batch are the answers one by one, and one request's trouble stays its own."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from fastapi import HTTPException

from contradpp.serve.options import Limits, ServiceSettings
from contradpp.serve.service import MAX_BATCH, Service
from serve.live import other_shop


@pytest.fixture
def service(tmp_path, shop_model):
    shop_model.save(tmp_path / "model")
    made = Service(ServiceSettings(model=str(tmp_path / "model"), limits=Limits(pending=60)))
    made.reloader.reload()
    yield made
    made.close()


@pytest.fixture
def calls(service, monkeypatch) -> list[int]:
    """How many baskets each call of the model had."""
    sizes: list[int] = []
    recommend = service.snapshot.recommend
    monkeypatch.setattr(
        service.snapshot,
        "recommend",
        lambda baskets, n, **more: sizes.append(len(baskets)) or recommend(baskets, n, **more),
    )
    return sizes


def ask(service, *queries):
    """The answers to questions that come together: a model, a basket and n."""

    async def all_at_once():
        return await asyncio.gather(*(service.batches.recommend(*one) for one in queries), return_exceptions=True)

    return asyncio.run(all_at_once())


def test_a_question_alone_is_a_call_alone(service, calls):
    ask(service, (service.snapshot, [], 3))
    assert calls == [1]


def test_questions_that_come_together_share_calls_and_get_their_own_answers(service, calls, shop_model):
    rng = np.random.default_rng(0)
    items = list(shop_model.items_)
    queries = [
        ([items[int(i)] for i in rng.choice(60, rng.integers(0, 6), replace=False)], 1 + k % 7) for k in range(30)
    ]
    found = ask(service, *((service.snapshot, basket, n) for basket, n in queries))
    assert max(calls) == MAX_BATCH
    assert len(calls) < 10
    for (basket, n), ranked in zip(queries, found, strict=True):
        expected, shares = shop_model.recommend(basket, N=n)
        assert ranked.items == expected.tolist()
        assert np.allclose(ranked.probabilities, shares)


def test_a_full_basket_does_not_spoil_the_batch(service, shop_model):
    items = list(shop_model.items_)
    full, fine = ask(service, (service.snapshot, items[:12], 3), (service.snapshot, items[:2], 3))
    assert full.problem
    assert len(fine.items) == 3


def test_a_request_that_was_given_up_is_left_out(service, calls):
    async def give_one_up():
        tasks = [asyncio.create_task(service.batches.recommend(service.snapshot, [], 1)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, third = asyncio.run(give_one_up())
    assert first == third
    assert isinstance(second, asyncio.CancelledError)


def test_a_failure_reaches_everyone_in_the_batch_and_the_next_batch_works(service, monkeypatch):
    def fail(*_, **__):
        raise ArithmeticError("out of numbers")

    four = [(service.snapshot, [], 1)] * 4
    with monkeypatch.context() as patch:
        patch.setattr(service.snapshot, "recommend", fail)
        assert [type(one) for one in ask(service, *four)] == [ArithmeticError] * 4
    assert all(len(one.items) == 1 for one in ask(service, *four))


def test_more_than_may_wait_are_refused(service):
    refused = [one for one in ask(service, *[(service.snapshot, [], 1)] * 70) if isinstance(one, HTTPException)]
    assert len(refused) == 10
    assert {one.status_code for one in refused} == {503}


def test_questions_to_an_old_and_a_new_model_are_kept_apart(service, tmp_path):
    old = service.snapshot
    other_shop().save(tmp_path / "model")
    service.reloader.reload()
    new = service.snapshot
    first, second, third = ask(service, (old, [], 2), (new, [], 2), (old, [], 2))
    assert first == third
    assert all(item in new.items for item in second.items)
    assert not any(item in new.items for item in first.items)
