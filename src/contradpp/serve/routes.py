"""The endpoints: each checks the limits, calls the model, and fills in the schema of its answer."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any, NamedTuple, get_type_hints

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

import contradpp
from contradpp.data.feedback import append_feedback, append_impression
from contradpp.errors import (
    DataError,
    ModelFileError,
    ParameterError,
    RankError,
    UnknownItemError,
)
from contradpp.models.explain import Explanation
from contradpp.serve import schemas
from contradpp.serve.middleware import read_body
from contradpp.serve.schemas import (
    as_json,
    as_json_of_many,
    as_text,
    check_at_most,
    parse,
    refusal,
)
from contradpp.serve.service import Service
from contradpp.serve.snapshot import ModelSnapshot, Ranked, Resolved
from contradpp.slates.greedy import DEFAULT_DIVERSITY

RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorAnswer, "description": text}
    for status, (_, text) in schemas.ERRORS.items()
    if text
}
ERRORS = {status: text for status, text in RESPONSES.items() if status not in (401, 507)}

# Errors of the library may name items. Answers do not repeat contents of a request.
UNKNOWN_ITEMS = (
    "there are items that the model or the vectors do not know: "
    'send vectors, or "unknown": "ignore"'
)
RERANK_REFUSED = (
    "a candidate occurs twice, the vectors are not finite or not of one length, "
    "scores are negative with scale log, "
    "or at_most, at_least and window ask for what k and the candidates cannot give"
)
ITEMS_REFUSED = (
    "an item is known already or was sent twice, or its features are not those that the model was "
    "fitted with: names it does not know, vectors of another length, or values that are not finite"
)
# Multiply-adds in the time that Python takes to parse a byte of a request, to find an item by a
# word, to call a model for a basket, to add an item to a list, and to write a suggestion.
READ_COST = 1e3
FIND_COST = 3e4
CALL_COST = 2e6
ADD_COST = 3e5
WRITE_COST = 1e4
LONG_ANSWER = 1000  # suggestions and reasons
REST = 0.005  # seconds for other requests after one whose parser held the interpreter

bearer = HTTPBearer(auto_error=False, description="The token that the server was started with.")


async def check_token(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> None:
    """Refuse a wrong token, in a time that does not depend on how wrong it is."""
    token = request.app.state.service.settings.token
    sent = given.credentials.encode("utf-8", "replace") if given else b""
    if token is not None and not hmac.compare_digest(sent, token.encode()):
        message = "this needs the server's token: Authorization: Bearer ..."
        raise HTTPException(401, message, {"www-authenticate": "Bearer"})


class BodyRoute(APIRoute):
    """A route that checks the token, then reads the body, then parses it, in a thread if long.

    FastAPI would read and validate it first, in the event loop.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request."""
        schema = get_type_hints(self.endpoint).get("body")
        if schema is None:
            return super().get_route_handler()

        async def handle(request: Request) -> Response:
            service: Service = request.app.state.service
            if self.dependencies:
                await check_token(request, await bearer(request))
            content = await read_body(request, service.limits.body_bytes)
            read = partial(parse, schema, content, service.limits)
            async with AsyncExitStack() as stack:
                if service.is_small(READ_COST * len(content)):
                    body = read()
                    if getattr(body, "n_entries", 0) > LONG_ANSWER:
                        await stack.enter_async_context(service.large)
                else:
                    await stack.enter_async_context(service.large)
                    async with service.parsing:
                        try:
                            body = await service.quick.run(read)
                        finally:
                            await asyncio.sleep(REST)
                return await self.endpoint(request, body)  # type: ignore[no-any-return]

        return handle


PROTECTED: dict[str, Any] = {"dependencies": [Depends(check_token)], "responses": RESPONSES}
router = APIRouter(route_class=BodyRoute)


# -- Baskets -------------------------------------------------------------------------------------


@router.post("/v1/recommend", response_model=schemas.RecommendAnswer, responses=ERRORS)
async def recommend(request: Request, body: schemas.RecommendRequest) -> Response:
    """Suggest the next items of one basket or many."""
    return await _suggest(request, body, rank_by=body.rank_by)


@router.post("/v1/slate", response_model=schemas.RecommendAnswer, responses=ERRORS)
async def slate(request: Request, body: schemas.SlateRequest) -> Response:
    """Suggest items that go with a basket, or with many, and are unlike each other."""
    options = {"diversity": body.diversity, "rank_by": body.rank_by, "at_most": body.at_most}
    return await _suggest(request, body, additions=body.n, **options)


@router.post("/v1/rerank", response_model=schemas.RerankAnswer, responses=ERRORS)
async def rerank(request: Request, body: schemas.RerankRequest) -> Response:
    """Choose and order candidates of any recommender, relevant and unlike each other."""
    service, snapshot = _begin(request)
    vectors = body.vectors.values() if isinstance(body.vectors, dict) else body.vectors
    if vectors is None:
        n_columns = snapshot.model.dpp.kernel.factors.shape[1]
    else:
        n_columns = max(map(len, vectors), default=0)
    size = body.k + len(body.given)
    cost = size * float(n_columns) * (len(body.candidates) + size)
    overhead = 2 * FIND_COST * (len(body.candidates) + len(body.given)) + ADD_COST * body.k

    def work() -> Response:
        _, scores, info = snapshot.rerank(**vars(body))
        named = [] if body.vectors is not None else [*body.candidates, *body.given]
        chosen = [
            {"item": body.candidates[position], "position": position, "score": score}
            for position, score in zip(info.positions.tolist(), scores.tolist(), strict=True)
        ]
        unknown = snapshot.resolve(named).unknown
        answer = {"unknown": unknown, "problem": info.reason, "slate": chosen}
        return as_json({"model": snapshot.version, **answer})

    try:
        return await service.run(work, cost, overhead)
    except UnknownItemError as error:
        raise HTTPException(422, UNKNOWN_ITEMS) from error
    except (DataError, ParameterError) as error:
        raise HTTPException(422, RERANK_REFUSED) from error


@router.post("/v1/complete", response_model=schemas.CompleteAnswer, responses=ERRORS)
async def complete(request: Request, body: schemas.CompleteRequest) -> Response:
    """Add items to a basket one by one, each the one that makes the set most likely."""
    service, snapshot = _begin(request)
    (basket, unknown), candidates, exclude = await _find(
        service, snapshot, body.basket, body.candidates, body.exclude
    )
    n = body.n if body.size is None else body.size - len(basket)
    if n < 0:
        message = f"size={body.size} is less than the {len(basket)} items of the basket"
        raise HTTPException(422, message)
    check_at_most("the number of items to add", n, service.limits.suggestions)
    options = _item_filter(body, candidates, exclude)
    options |= _history_options(service, snapshot, body)

    def work() -> tuple[Ranked, float | None]:
        added = snapshot.complete(basket, n, **options)
        (log_probability,) = snapshot.scores([[*basket, *added.items]])
        return added, log_probability

    cost = snapshot.ranking_cost([basket], additions=n, rankings=n + 1)
    added, log_probability = await service.run(work, cost, _overhead(options, n + 1, 1))
    return as_json(
        {
            "model": snapshot.version,
            "unknown": [*unknown, *_history_of(snapshot, body).unknown],
            "problem": added.problem,
            "suggestions": _named(snapshot, added.items, added.probabilities),
            "log_probability": log_probability,
        }
    )


@router.post("/v1/score", response_model=schemas.ScoreAnswer, responses=ERRORS)
async def score(request: Request, body: schemas.ScoreRequest) -> Response:
    """Return the log probability of the known items of each basket."""
    service, snapshot = _begin(request)
    resolved = await _find(service, snapshot, *body.all)
    baskets = [one.items for one in resolved]
    cost = snapshot.scoring_cost(map(len, baskets))
    overhead = FIND_COST * sum(map(len, baskets))
    log_probabilities = await service.run(lambda: snapshot.scores(baskets), cost, overhead)
    results = (
        as_text(
            {
                "unknown": one.unknown,
                "problem": "impossible" if log_probability is None else None,
                "log_probability": log_probability,
            }
        )
        for one, log_probability in zip(resolved, log_probabilities, strict=True)
    )
    cost = READ_COST * len(request.state.body)  # unknown items are written again
    return await service.place(lambda: as_json_of_many(snapshot.version, results), cost)


@router.post("/v1/sample", response_model=schemas.SampleAnswer, responses=ERRORS)
async def sample(request: Request, body: schemas.SampleRequest) -> Response:
    """Draw sets from the model, with or without given items."""
    service, snapshot = _begin(request)
    ((given, unknown),) = await _find(service, snapshot, body.given)
    service.check_cost(snapshot.sampling_cost(body.n_samples, body.size))

    def work() -> Response:
        problem: str | None = None
        sets: list[list[Hashable]] = []
        try:
            sets = snapshot.sample(body.n_samples, size=body.size, given=given, seed=body.seed)
        except RankError as error:
            problem = str(error)
        results = [_named(snapshot, items, map(snapshot.weight, items)) for items in sets]
        answer = {"unknown": unknown, "problem": problem, "results": results}
        return as_json({"model": snapshot.version, **answer})

    return await service.slow.run(work)


# -- Feedback ------------------------------------------------------------------------------------


@router.post("/v1/feedback", response_model=schemas.FeedbackAnswer, **PROTECTED)
async def feedback(request: Request, body: schemas.FeedbackRequest) -> Response:
    """Store accepted, rejected or shown items for training; answered when they are on disk."""
    service, snapshot = _begin(request)
    basket, items, taken = await _find(service, snapshot, body.basket, body.items, body.taken)
    present = set(basket.items)
    new = [item for item in items.items if item not in present]
    if not new:
        message = "items: none of them is known and new to the basket, so there is nothing to learn"
        raise HTTPException(422, message)
    if not all(type(item) in (str, int) for item in (*basket.items, *new)):
        message = "only items whose ids are strings or integers can be stored in the feedback log"
        raise HTTPException(422, message)
    write: Callable[..., None]
    if body.outcome == "shown":
        sent_positions = body.positions or range(len(body.items))
        positions: dict[Hashable, int] = {}
        for position, name in zip(sent_positions, body.items, strict=True):
            positions.setdefault(snapshot.find(name), position)
        write = partial(
            append_impression,
            basket=basket.items,
            shown=new,
            taken=[item for item in taken.items if item in positions and item not in present],
            positions=[positions[item] for item in new],
            id=body.id,
        )
    else:
        write = partial(
            append_feedback,
            outcome=body.outcome,
            items=[*basket.items, *new],
            judged=len(new),
            id=body.id,
        )
    await service.store(body.outcome, write)
    return as_json({"stored": True, "unknown": [*basket.unknown, *items.unknown]})


# -- The catalogue -------------------------------------------------------------------------------


@router.get("/v1/items", response_model=schemas.ItemsAnswer, responses=ERRORS)
async def items(
    request: Request,
    query: Annotated[str, Query(max_length=100)] = "",
    limit: Annotated[int, Query(ge=1, json_schema_extra={"limit": "suggestions"})] = 20,
) -> Response:
    """Find items whose name or id starts with the query, then those that contain it."""
    service, snapshot = _begin(request)
    check_at_most("limit", limit, service.limits.suggestions)
    codes, more = snapshot.search.find(query, limit)
    found = [snapshot.items[code] for code in codes]
    return as_json({"items": _named(snapshot, found, map(snapshot.weight, found)), "more": more})


@router.post("/v1/items", response_model=schemas.NewItemsAnswer, **PROTECTED)
async def new_items(request: Request, body: schemas.NewItemsRequest) -> Response:
    """Add items without sales, by their features; answered when the model file has them."""
    service, snapshot = _begin(request)
    if getattr(snapshot.model, "explained_", None) is None:
        message = "this model was not fitted with item_features: it cannot tell of new items"
        raise HTTPException(422, message)
    ids = [one.item for one in body.items]
    features = {one.item: one.features for one in body.items}
    names = {one.item: one.name for one in body.items if one.name}
    categories = {one.item: one.category for one in body.items if one.category}

    def add(model: Any) -> None:
        model.add_items(ids, features, names=names, categories=categories)

    try:
        await service.slow.run(lambda: service.reloader.edit(add))
    except ModelFileError as error:
        raise HTTPException(503, f"the items could not be added: {error}") from error
    except (DataError, ParameterError) as error:
        raise HTTPException(422, ITEMS_REFUSED) from error
    present = service.snapshot
    return as_json({"model": present.version, "added": len(ids), "n_items": len(present.items)})


@router.get("/v1/map", response_model=schemas.MapAnswer, responses=ERRORS)
async def catalogue_map(
    request: Request,
    items: Annotated[
        list[str] | None,
        Query(description="Items that must be on it.", json_schema_extra={"limit": "map_items"}),
    ] = None,
    limit: Annotated[int, Query(ge=1, json_schema_extra={"limit": "map_items"})] = 300,
) -> Response:
    """Place the most probable items in two dimensions; neighbors affect each other."""
    service, snapshot = _begin(request)
    check_at_most("limit", limit, service.limits.map_items)
    check_at_most("the number of items", len(items or []), service.limits.map_items)
    resolved = snapshot.resolve(items or [])
    required = [snapshot.items.code(item) for item in resolved.items]
    codes, positions = await service.slow.run(lambda: snapshot.map_positions(required, limit))
    points = []
    for code, (x, y) in zip(codes, positions.tolist(), strict=True):
        item = snapshot.items[code]
        place = {"x": round(x, 4), "y": round(y, 4), "weight": snapshot.weight(item)}
        points.append({**snapshot.named(item), **place})
    return as_json({"model": snapshot.version, "points": points, "unknown": resolved.unknown})


# -- The service itself --------------------------------------------------------------------------


@router.get("/v1/model", response_model=schemas.ModelAnswer, responses=ERRORS)
async def model(request: Request) -> Response:
    """Describe the model, the result of the last reload, and the limits of a request."""
    service, snapshot = _begin(request)
    answer = schemas.ModelAnswer(
        contradpp=contradpp.__version__,
        model=type(snapshot.model).__name__,
        version=snapshot.version,
        loaded=snapshot.loaded,
        n_items=len(snapshot.items),
        n_components=int(snapshot.model.dpp.kernel.factors.shape[1]),
        expected_size=snapshot.expected_size,
        diversity=DEFAULT_DIVERSITY,
        reload=service.reloader.state,
        limits=service.limits,
        history=snapshot.model.uses_history,
        feedback=service.settings.feedback is not None,
        token_required=service.settings.token is not None,
    )
    return as_json(answer.model_dump())


@router.post("/v1/reload", response_model=schemas.ReloadAnswer, **PROTECTED)
async def reload(request: Request) -> Response:
    """Load the model file if it changed. Other workers follow at their next check."""
    service: Service = request.app.state.service
    try:
        changed = await service.slow.run(service.reloader.reload)
    except ModelFileError as error:
        message = f"the model file cannot be used, the model before it stays: {error}"
        raise HTTPException(503, message) from error
    return as_json({"version": service.snapshot.version, "changed": changed})


@router.get("/healthz", response_model=schemas.Ready, tags=["operation"])
async def healthz() -> Response:
    """Confirm that the process answers."""
    return as_json({"ready": True})


@router.get(
    "/readyz", response_model=schemas.Ready, responses={503: RESPONSES[503]}, tags=["operation"]
)
async def readyz(request: Request) -> Response:
    """Confirm that there is a model."""
    if request.app.state.service.reloader.snapshot is None:
        return refusal(503, "there is no model yet")
    return as_json({"ready": True})


# -- Helpers -------------------------------------------------------------------------------------


def _begin(request: Request) -> tuple[Service, ModelSnapshot]:
    """Return the service, and the model that answers the whole request."""
    service: Service = request.app.state.service
    return service, service.snapshot


async def _find(
    service: Service, snapshot: ModelSnapshot, *lists: list[str | int] | None
) -> list[Resolved]:
    """Return the known and the unknown items of every list."""
    cost = FIND_COST * sum(len(words or ()) for words in lists)
    return await service.place(lambda: [snapshot.resolve(words or ()) for words in lists], cost)


def _item_filter(
    body: schemas.SuggestRequest | schemas.CompleteRequest, candidates: Resolved, exclude: Resolved
) -> dict[str, Any]:
    """Return the arguments that restrict the suggestions."""
    is_free = body.candidates is None
    return {"candidates": None if is_free else candidates.items, "exclude": exclude.items}


def _overhead(options: dict[str, Any], calls: int, additions: int = 0) -> float:
    """Estimate the work of Python for calls of a model that add items one by one to a list."""
    n_listed = len(options["candidates"] or ()) + len(options["exclude"])
    return FIND_COST * n_listed + calls * (CALL_COST + ADD_COST * additions)


def _history_options(
    service: Service, snapshot: ModelSnapshot, body: schemas.WithHistory
) -> dict[str, Any]:
    """Return the arguments about the history, if there is one."""
    if body.history is None:
        return {}
    if not snapshot.model.uses_history:
        message = "this model does not use a history: customers were not known when it was fitted"
        raise HTTPException(422, message)
    for number, basket in enumerate(body.history):
        what = f"the length of basket {number} of the history"
        check_at_most(what, len(basket), service.limits.basket_items)
    return {"history": _history_of(snapshot, body).baskets, "new_only": body.new_only}


class History(NamedTuple):
    """The known items of a customer's earlier baskets, and the unknown ones."""

    baskets: list[list[Hashable]]
    unknown: list[str | int]


def _history_of(snapshot: ModelSnapshot, body: schemas.WithHistory) -> History:
    found = [snapshot.resolve(basket) for basket in body.history or ()]
    unknown = dict.fromkeys(name for one in found for name in one.unknown)
    return History([one.items for one in found], list(unknown))


def _named(
    snapshot: ModelSnapshot, items: Iterable[Hashable], probabilities: Iterable[float]
) -> list[dict[str, Any]]:
    return [
        {**snapshot.named(item), "probability": probability}
        for item, probability in zip(items, probabilities, strict=True)
    ]


async def _suggest(
    request: Request, body: schemas.SuggestRequest, *, additions: int = 0, **options: Any
) -> Response:
    """Answer with next items, or with slates if items are added one by one."""
    service, snapshot = _begin(request)
    *resolved, candidates, exclude = await _find(
        service, snapshot, *body.all, body.candidates, body.exclude
    )
    baskets = [one.items for one in resolved]
    is_restricted = bool(body.exclude) or body.candidates is not None or body.history is not None
    if len(baskets) == 1 and options == {"rank_by": "probability"} and not is_restricted:
        ranked = [await service.batches.recommend(snapshot, baskets[0], body.n)]
    else:
        options |= _item_filter(body, candidates, exclude)
        options |= _history_options(service, snapshot, body)
        rank = snapshot.slate if additions else snapshot.recommend
        cost = snapshot.ranking_cost(baskets, additions=additions)
        work = partial(rank, baskets, body.n, **options)
        ranked = await service.run(work, cost, _overhead(options, len(baskets), additions))
    return await _suggestions(request, snapshot, resolved, ranked, body)


async def _suggestions(
    request: Request,
    snapshot: ModelSnapshot,
    resolved: list[Resolved],
    ranked: list[Ranked],
    body: schemas.SuggestRequest,
) -> Response:
    """Answer for each basket, with reasons if the request wants them and the model has some."""
    service: Service = request.app.state.service
    explained: list[list[Explanation]] = [[] for _ in ranked]
    explain: Any = getattr(snapshot.model, "explain_each", None)
    history = _history_of(snapshot, body)
    if body.why and explain is not None:
        if body.history is not None:
            explain = partial(explain, history=history.baskets)
        baskets = [one.items for one in resolved]
        suggested = [one.items for one in ranked]
        cost = snapshot.explaining_cost(baskets, max(map(len, suggested), default=0))
        overhead = CALL_COST * len(baskets)
        explained = await service.run(
            lambda: list(map(explain, baskets, suggested)), cost, overhead
        )

    def results() -> Iterator[str]:
        for (_, unknown), one, reasons in zip(resolved, ranked, explained, strict=True):
            suggestions = _named(snapshot, one.items, one.probabilities)
            for suggestion, reason in zip(suggestions, reasons, strict=False):
                suggestion["because"] = [
                    {**snapshot.named(item), "nats": nats} for item, nats in reason.by_item.items()
                ]
                suggestion["popular"] = reason.popular
                suggestion["lift"] = snapshot.lift(reason.item, suggestion["probability"])
                if reason.n_orders:
                    suggestion["bought"] = reason.n_bought
                if reason.like:
                    suggestion["like"] = list(reason.like)
            unknown = [*unknown, *history.unknown]
            head = as_text({"unknown": unknown, "problem": one.problem})
            yield f'{head[:-1]},"suggestions":[{",".join(map(as_text, suggestions))}]}}'

    n_written = sum(len(one.items) for one in ranked)
    n_written += sum(len(reason.by_item) for reasons in explained for reason in reasons)
    cost = WRITE_COST * n_written + READ_COST * len(request.state.body)
    return await service.place(lambda: as_json_of_many(snapshot.version, results()), cost)
