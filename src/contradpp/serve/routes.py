"""The endpoints: each checks the limits, asks the model, and puts the answer into its schema."""

from __future__ import annotations

import hmac
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

import contradpp
from contradpp.data.feedback import append_feedback, append_impression
from contradpp.errors import DataError, ModelFileError, ParameterError, RankError
from contradpp.models.conditional import Explanation
from contradpp.serve import schemas
from contradpp.serve.schemas import as_json, as_json_of_many, check_at_most, check_limits, refusal
from contradpp.serve.served import Known, Ranked, Served
from contradpp.serve.service import Service

DESCRIPTIONS = {
    400: "Not JSON; or, in plain text, sent to a name that the server does not go by.", 401: "The token is wrong.",
    403: "Sent by a page of another site.", 408: "The body came too slowly.", 413: "The body is too long.",
    415: "The body is not declared as JSON.", 422: "The request is malformed or asks for too much.",
    503: "There is no model, or too much to do.", 504: "There was no answer in time.", 507: "The disk is full.",
}  # fmt: skip
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorAnswer, "description": text} for status, text in DESCRIPTIONS.items()
}
ERRORS = {status: told for status, told in RESPONSES.items() if status not in (401, 507)}

RERANK_REFUSED = (
    "a candidate occurs twice, the vectors are not finite or not of one length, scores are negative with scale log, or "
    "at_most, at_least and window ask for what k and the candidates cannot give"
)
ITEMS_REFUSED = (
    "an item is known already or was sent twice, or its features are not those that the model was fitted with: names "
    "it does not know, vectors of another length, or values that are not finite"
)
WRITTEN = 1e4  # multiply-adds in the time that it takes to name and write a suggestion

router = APIRouter()
bearer = HTTPBearer(auto_error=False, description="The token that the server was started with, if it was.")


async def check_token(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> None:
    """Refuse a request whose token is not ours, in a time that does not depend on how wrong it is."""
    token = request.app.state.service.settings.token
    sent = given.credentials.encode("utf-8", "replace") if given else b""
    if token is not None and not hmac.compare_digest(sent, token.encode()):
        raise HTTPException(
            401, "this needs the server's token: Authorization: Bearer ...", {"www-authenticate": "Bearer"}
        )


PROTECTED: dict[str, Any] = {"dependencies": [Depends(check_token)], "responses": RESPONSES}


# -- Baskets -------------------------------------------------------------------------------------


@router.post("/v1/recommend", response_model=schemas.RecommendAnswer, responses=ERRORS)
async def recommend(request: Request, asked: schemas.RecommendRequest) -> Response:
    """Say what goes with a basket, or with many."""
    service, served = _present(request, asked)
    known = _known(service, served, asked)
    baskets = [one.items for one in known]
    if len(baskets) == 1 and not asked.exclude and asked.candidates is None and asked.rank_by == "probability":
        found = [await service.batches.recommend(served, baskets[0], asked.n)]
    else:
        told = {"rank_by": asked.rank_by, **_among(served, asked)}
        found = await service.run(lambda: served.recommend(baskets, asked.n, **told), served.ranking_cost(baskets))
    return await _suggestions(service, served, known, found, why=asked.why)


@router.post("/v1/slate", response_model=schemas.RecommendAnswer, responses=ERRORS)
async def slate(request: Request, asked: schemas.SlateRequest) -> Response:
    """Say what goes with a basket, or with many, without more of the same."""
    service, served = _present(request, asked)
    known = _known(service, served, asked)
    baskets = [one.items for one in known]
    told = {"diversity": asked.diversity, "at_most": asked.at_most, **_among(served, asked)}
    cost = served.ranking_cost(baskets, additions=asked.n)
    found = await service.run(lambda: served.slate(baskets, asked.n, **told), cost)
    return await _suggestions(service, served, known, found, why=asked.why)


@router.post("/v1/rerank", response_model=schemas.RerankAnswer, responses=ERRORS)
async def rerank(request: Request, asked: schemas.RerankRequest) -> Response:
    """Choose and order some of anyone's candidates, relevant and unlike each other."""
    service, served = _present(request, asked)
    columns = served.model.item_factors_.shape[1] if asked.vectors is None else max(map(len, asked.vectors), default=0)
    cost = (asked.k + len(asked.given)) * float(columns) * (len(asked.candidates) + asked.k + len(asked.given))
    try:
        _, scores, info = await service.run(lambda: served.rerank(**asked.model_dump()), cost)
    except (DataError, ParameterError) as error:  # it may name items, which an answer does not repeat
        raise HTTPException(422, RERANK_REFUSED) from error
    chosen = [
        {"item": asked.candidates[position], "position": position, "score": score}
        for position, score in zip(info.positions.tolist(), scores.tolist(), strict=True)
    ]
    unknown = [] if asked.vectors is not None else served.resolve([*asked.candidates, *asked.given]).unknown
    return as_json({"model": served.version, "unknown": unknown, "problem": info.reason, "slate": chosen})


@router.post("/v1/complete", response_model=schemas.CompleteAnswer, responses=ERRORS)
async def complete(request: Request, asked: schemas.CompleteRequest) -> Response:
    """Add items to a basket one by one, each the one that makes the set most likely."""
    service, served = _present(request, asked)
    basket, unknown = served.resolve(asked.basket)
    n = asked.n if asked.size is None else asked.size - len(basket)
    if n < 0:
        raise HTTPException(422, f"size={asked.size} is less than the {len(basket)} items of the basket")
    check_at_most("the number of items to add", n, service.limits.suggestions)
    among = _among(served, asked)

    def work() -> dict[str, Any]:
        added = served.complete(basket, n, **among)
        (score,) = served.scores([[*basket, *added.items]])
        return {"problem": added.problem, "suggestions": _named(served, *added[:2]), "log_probability": score}

    answer = await service.run(work, served.ranking_cost([basket], additions=n, rankings=n + 1))
    return as_json({"model": served.version, "unknown": unknown, **answer})


@router.post("/v1/score", response_model=schemas.ScoreAnswer, responses=ERRORS)
async def score(request: Request, asked: schemas.ScoreRequest) -> Response:
    """Say how probable baskets are: log P of their known items."""
    service, served = _present(request, asked)
    known = _known(service, served, asked)
    baskets = [one.items for one in known]
    logs = await service.run(lambda: served.scores(baskets), served.scoring_cost(map(len, baskets)))
    results = [
        {"unknown": one.unknown, "problem": "impossible" if value is None else None, "log_probability": value}
        for one, value in zip(known, logs, strict=True)
    ]
    return as_json({"model": served.version, "results": results})


@router.post("/v1/sample", response_model=schemas.SampleAnswer, responses=ERRORS)
async def sample(request: Request, asked: schemas.SampleRequest) -> Response:
    """Draw sets from the model, given a basket or not."""
    service, served = _present(request, asked)
    given, unknown = served.resolve(asked.given)
    service.afford(served.sampling_cost(asked.n_samples, asked.size))
    answer: dict[str, Any] = {"problem": None, "results": []}
    try:
        drawn = await service.slow.run(
            lambda: served.sample(asked.n_samples, size=asked.size, given=given, seed=asked.seed)
        )
        answer["results"] = [_named(served, one, map(served.weight, one)) for one in drawn]
    except RankError as error:
        answer["problem"] = str(error)
    return as_json({"model": served.version, "unknown": unknown, **answer})


# -- Feedback ------------------------------------------------------------------------------------


@router.post("/v1/feedback", response_model=schemas.FeedbackAnswer, **PROTECTED)
async def feedback(request: Request, asked: schemas.FeedbackRequest) -> Response:
    """Keep what was accepted, rejected or shown for the next training; answered when it is on the disk."""
    service, served = _present(request, asked)
    basket, items = served.resolve(asked.basket), served.resolve(asked.items)
    new = [item for item in items.items if item not in basket.items]
    if not new:
        raise HTTPException(422, "items: none of them is known and new to the basket, so there is nothing to learn")
    whole = [*basket.items, *new]
    if not all(type(item) in (str, int) for item in whole):
        raise HTTPException(422, "only items whose ids are strings or integers can be kept in the feedback log")
    if asked.outcome == "shown":
        places: dict[Hashable, int] = {}
        for place, item in zip(asked.positions or range(len(asked.items)), asked.items, strict=True):
            places.setdefault(served.find(item), place)
        facts: dict[str, Any] = {
            "basket": basket.items,
            "shown": new,
            "taken": [item for item in served.resolve(asked.taken or []).items if item in new],
            "positions": [places[item] for item in new],
        }
        write = partial(append_impression, **facts, id=asked.id)
    else:
        write = partial(append_feedback, outcome=asked.outcome, items=whole, judged=len(new), id=asked.id)
    await service.store(asked.outcome, write)
    return as_json({"stored": True, "unknown": [*basket.unknown, *items.unknown]})


# -- The catalogue -------------------------------------------------------------------------------


@router.get("/v1/items", response_model=schemas.ItemsAnswer, responses=ERRORS)
async def items(
    request: Request,
    query: Annotated[str, Query(max_length=100)] = "",
    limit: Annotated[int, Query(ge=1, json_schema_extra={"limit": "suggestions"})] = 20,
) -> Response:
    """Find items: first those whose name or id starts with the query, then those that contain it."""
    service, served = _present(request)
    check_at_most("limit", limit, service.limits.suggestions)
    codes, more = served.search.find(query, limit)
    found = [served.items[code] for code in codes]
    return as_json({"items": _named(served, found, map(served.weight, found)), "more": more})


@router.post("/v1/items", response_model=schemas.NewItemsAnswer, **PROTECTED)
async def new_items(request: Request, asked: schemas.NewItemsRequest) -> Response:
    """Add items that never sold, by their features, to the model and its file; answered when they are served."""
    service, served = _present(request, asked)
    if getattr(served.model, "explained_", None) is None:
        raise HTTPException(422, "this model was not fitted with item_features: it cannot tell of new items")
    ids = [one.item for one in asked.items]
    features = {one.item: one.features for one in asked.items}
    names = {one.item: one.name for one in asked.items if one.name}
    categories = {one.item: one.category for one in asked.items if one.category}

    def add(model: Any) -> None:
        model.add_items(ids, features, names=names, categories=categories)

    try:
        await service.slow.run(lambda: service.reloader.change(add))
    except ModelFileError as error:
        raise HTTPException(503, f"the items could not be added: {error}") from error
    except (DataError, ParameterError) as error:  # it may name items, which an answer does not repeat
        raise HTTPException(422, ITEMS_REFUSED) from error
    return as_json({"model": service.served.version, "added": len(ids), "n_items": len(service.served.items)})


@router.get("/v1/map", response_model=schemas.MapAnswer, responses=ERRORS)
async def catalogue_map(
    request: Request,
    items: Annotated[
        list[str] | None, Query(description="Items that must be on it.", json_schema_extra={"limit": "map_items"})
    ] = None,
    limit: Annotated[int, Query(ge=1, json_schema_extra={"limit": "map_items"})] = 300,
) -> Response:
    """Place the weightiest items in two dimensions, substitutes side by side."""
    service, served = _present(request)
    check_at_most("limit", limit, service.limits.map_items)
    check_at_most("the number of items", len(items or []), service.limits.map_items)
    asked, unknown = served.resolve(items or [])
    codes, places = await service.slow.run(lambda: served.places([served.items.code(item) for item in asked], limit))
    points = [
        {**served.named(item), "x": round(x, 4), "y": round(y, 4), "weight": served.weight(item)}
        for item, (x, y) in zip(map(served.items.__getitem__, codes), places.tolist(), strict=True)
    ]
    return as_json({"model": served.version, "points": points, "unknown": unknown})


# -- The service itself --------------------------------------------------------------------------


@router.get("/v1/model", response_model=schemas.ModelAnswer, responses=ERRORS)
async def model(request: Request) -> Response:
    """Tell which model is served, what became of the last reload, and what a request may ask for."""
    service, served = _present(request)
    answer = schemas.ModelAnswer(
        contradpp=contradpp.__version__, model=type(served.model).__name__, version=served.version,
        loaded=served.loaded, n_items=len(served.items), n_components=int(served.model.item_factors_.shape[1]),
        expected_size=served.expected_size, diversity=served.model.default_diversity, reload=service.reloader.state,
        limits=service.limits, feedback=service.settings.feedback is not None,
        token_required=service.settings.token is not None,
    )  # fmt: skip
    return as_json(answer.model_dump())


@router.post("/v1/reload", response_model=schemas.ReloadAnswer, **PROTECTED)
async def reload(request: Request) -> Response:
    """Look at the model file now. With several workers, the others follow when they next look."""
    service: Service = request.app.state.service
    try:
        changed = await service.slow.run(service.reloader.reload)
    except ModelFileError as error:
        raise HTTPException(503, f"the model file cannot be used, the model before it stays: {error}") from error
    return as_json({"version": service.served.version, "changed": changed})


@router.get("/healthz", response_model=schemas.Ready, tags=["operation"])
async def healthz() -> Response:
    """Tell that the process answers at all."""
    return as_json({"ready": True})


@router.get("/readyz", response_model=schemas.Ready, responses={503: RESPONSES[503]}, tags=["operation"])
async def readyz(request: Request) -> Response:
    """Tell whether there is a model to ask."""
    if request.app.state.service.reloader.served is None:
        return refusal(503, "there is no model yet")
    return as_json({"ready": True})


# -- Helpers -------------------------------------------------------------------------------------


def _present(request: Request, asked: BaseModel | None = None) -> tuple[Service, Served]:
    """Return the service, and the model that answers this request from beginning to end, if it is within limits."""
    service: Service = request.app.state.service
    if asked is not None:
        check_limits(asked, service.limits)
    return service, service.served


def _known(service: Service, served: Served, asked: schemas.BasketsRequest) -> list[Known]:
    """Return the known items of every basket."""
    for number, basket in enumerate(asked.all):
        check_at_most(f"the length of basket {number}", len(basket), service.limits.basket_items)
    return [served.resolve(basket) for basket in asked.all]


def _among(served: Served, asked: schemas.SuggestRequest | schemas.CompleteRequest) -> dict[str, Any]:
    """Return which items may be suggested."""
    candidates = None if asked.candidates is None else served.resolve(asked.candidates).items
    return {"candidates": candidates, "exclude": served.resolve(asked.exclude or []).items}


def _named(served: Served, items: Iterable[Hashable], shares: Iterable[float]) -> list[dict[str, Any]]:
    return [{**served.named(item), "probability": share} for item, share in zip(items, shares, strict=True)]


async def _suggestions(
    service: Service, served: Served, known: list[Known], found: list[Ranked], *, why: bool
) -> Response:
    """Answer for each basket, with what speaks for each suggestion if someone asks and the model knows."""
    explained: list[list[Explanation]] = [[] for _ in found]
    explain: Any = getattr(served.model, "explain_each", None)
    if why and explain is not None:
        most = max((len(one.items) for one in found), default=0)
        explained = await service.run(
            lambda: [explain(basket, one.items) for (basket, _), one in zip(known, found, strict=True)],
            served.explaining_cost((one.items for one in known), most),
        )

    def results() -> Iterator[dict[str, Any]]:
        for (_, unknown), one, reasons in zip(known, found, explained, strict=True):
            suggestions = _named(served, *one[:2])
            for suggestion, reason in zip(suggestions, reasons, strict=False):
                suggestion["because"] = [{**served.named(item), "nats": nats} for item, nats in reason.by_item.items()]
                suggestion["popular"] = reason.popular
            yield {"unknown": unknown, "problem": one.problem, "suggestions": suggestions}

    cost = WRITTEN * sum(len(one.items) + 1 for one in found)
    return await service.place(lambda: as_json_of_many(served.version, results()), cost)
