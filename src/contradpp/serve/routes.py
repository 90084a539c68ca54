"""The endpoints: each checks the limits, asks the model, and puts the answer into its schema."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

import contradpp
from contradpp.data.feedback import append_feedback, append_impression
from contradpp.errors import DataError, ModelFileError, ParameterError, RankError
from contradpp.serve import schemas
from contradpp.serve.catalogue import Known
from contradpp.serve.gate import Refused, as_json, as_json_of_many, refusal
from contradpp.serve.served import Ranked, Served
from contradpp.serve.service import Service

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorAnswer, "description": text}
    for status, text in {
        400: "Not JSON.", 403: "Sent by a page of another site.", 408: "The body came too slowly.",
        413: "The body is too long.", 415: "The body is not declared as JSON.",
        421: "The server does not go by this name.", 422: "The request is malformed or asks for too much.",
        503: "There is no model, or too much to do.", 504: "There was no answer in time.",
    }.items()
}  # fmt: skip
DENIED: dict[int | str, dict[str, Any]] = {401: {"model": schemas.ErrorAnswer, "description": "The token is wrong."}}
FULL: dict[int | str, dict[str, Any]] = {507: {"model": schemas.ErrorAnswer, "description": "The disk is full."}}

RERANK_REFUSED = (
    "a candidate occurs twice, the vectors are not finite or not of one length, scores are negative with scale log, or "
    "at_most, at_least and window ask for what k and the candidates cannot give"
)

WRITTEN = 1e4  # multiply-adds in the time that it takes to name and write a suggestion
ITEMS_REFUSED = (
    "an item is known already or was sent twice, or its features are not those that the model was fitted with: names "
    "it does not know, vectors of another length, or values that are not finite"
)

router = APIRouter()
bearer = HTTPBearer(auto_error=False, description="The token that the server was started with, if it was.")
Token = Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]


# -- Questions about baskets ---------------------------------------------------------------------


@router.post("/v1/recommend", response_model=schemas.RecommendAnswer, responses=ERRORS)
async def recommend(request: Request, asked: schemas.RecommendRequest) -> Response:
    """Say what goes with a basket, or with many."""
    service, served, known, among = _suggesting(request, asked)
    baskets = [one.items for one in known]
    plain = among == {"candidates": None, "exclude": []} and asked.rank_by == "probability"
    if len(baskets) == 1 and plain:
        found = [await service.batches.recommend(served, baskets[0], asked.n)]
    else:
        told = {**among, "rank_by": asked.rank_by}
        found = await service.run(lambda: served.recommend(baskets, asked.n, **told), served.ranking_cost(baskets))
    return await _each(service, served, known, await _suggestions(service, served, baskets, found, why=asked.why))


@router.post("/v1/slate", response_model=schemas.RecommendAnswer, responses=ERRORS)
async def slate(request: Request, asked: schemas.SlateRequest) -> Response:
    """Say what goes with a basket, or with many, without more of the same."""
    service, served, known, among = _suggesting(request, asked)
    baskets = [one.items for one in known]
    told = {**among, "diversity": asked.diversity, "at_most": asked.at_most}
    found = await service.run(
        lambda: served.slate(baskets, asked.n, **told), served.ranking_cost(baskets, additions=asked.n)
    )
    return await _each(service, served, known, await _suggestions(service, served, baskets, found, why=asked.why))


@router.post("/v1/rerank", response_model=schemas.RerankAnswer, responses=ERRORS)
async def rerank(request: Request, asked: schemas.RerankRequest) -> Response:
    """Choose and order some of anyone's candidates, relevant and unlike each other."""
    service, served = _present(request)
    _at_most("k", asked.k, service.limits.suggestions)
    _at_most("the length of candidates", len(asked.candidates), service.limits.listed_items)
    _at_most("the length of given", len(asked.given), service.limits.basket_items)
    columns = served.model.item_factors_.shape[1] if asked.vectors is None else max(map(len, asked.vectors), default=0)
    cost = (asked.k + len(asked.given)) * float(columns) * (len(asked.candidates) + asked.k + len(asked.given))
    try:
        found = await service.run(lambda: served.rerank(**asked.model_dump()), cost)
    except (DataError, ParameterError) as error:  # it may name items, which an answer does not repeat
        raise Refused(422, RERANK_REFUSED) from error
    chosen = [
        {"item": asked.candidates[position], "position": position, "score": score}
        for position, score in zip(found.positions, found.scores, strict=True)
    ]
    unknown = [] if asked.vectors is not None else served.ids.resolve([*asked.candidates, *asked.given]).unknown
    return as_json({"model": served.version, "unknown": unknown, "problem": found.problem, "slate": chosen})


@router.post("/v1/complete", response_model=schemas.CompleteAnswer, responses=ERRORS)
async def complete(request: Request, asked: schemas.CompleteRequest) -> Response:
    """Add items to a basket one by one, trading how well they go with it against how alike they are."""
    service, served = _present(request)
    (known,) = _known(service, served, [asked.basket])
    basket = known.items
    n = asked.n if asked.size is None else asked.size - len(basket)
    if n < 0:
        raise Refused(422, f"size={asked.size} is less than the {len(basket)} items of the basket")
    _at_most("the number of items to add", n, service.limits.suggestions)
    among = _among(service, served, asked)

    def work() -> dict[str, Any]:
        added = served.complete(basket, n, variety=asked.variety, **among)
        (score,) = served.scores([[*basket, *added.items]])
        return {"problem": added.problem, "suggestions": _named(served, *added[:2]), "log_probability": score}

    answer = await service.run(work, served.ranking_cost([basket], additions=n, rankings=n + 1))
    return as_json({"model": served.version, "unknown": known.unknown, **answer})


@router.post("/v1/score", response_model=schemas.ScoreAnswer, responses=ERRORS)
async def score(request: Request, asked: schemas.ScoreRequest) -> Response:
    """Say how probable baskets are: log P of their known items."""
    service, served = _present(request)
    known = _known(service, served, asked.all)
    baskets = [one.items for one in known]
    logs = await service.run(lambda: served.scores(baskets), served.scoring_cost(map(len, baskets)))
    answers = [{"problem": "impossible" if value is None else None, "log_probability": value} for value in logs]
    return await _each(service, served, known, answers)


@router.post("/v1/sample", response_model=schemas.SampleAnswer, responses=ERRORS)
async def sample(request: Request, asked: schemas.SampleRequest) -> Response:
    """Draw sets from the model, given a basket or not."""
    service, served = _present(request)
    _at_most("n_samples", asked.n_samples, service.limits.samples)
    (given,) = _known(service, served, [asked.given])
    service.afford(served.sampling_cost(asked.n_samples, asked.size))
    answer: dict[str, Any] = {"problem": None, "results": []}
    try:
        drawn = await service.slow.run(
            lambda: served.sample(asked.n_samples, size=asked.size, given=given.items, seed=asked.seed)
        )
        answer["results"] = [_with_probability(served, one) for one in drawn]
    except RankError as error:
        answer["problem"] = str(error)
    return as_json({"model": served.version, "unknown": given.unknown, **answer})


# -- Feedback ------------------------------------------------------------------------------------


@router.post("/v1/feedback", response_model=schemas.FeedbackAnswer, responses=ERRORS | DENIED | FULL)
async def feedback(request: Request, token: Token, asked: schemas.FeedbackRequest) -> Response:
    """Keep what was accepted, rejected or shown for the next training; answered when it is on the disk."""
    service: Service = request.app.state.service
    service.check_token(token.credentials if token else None)
    served = service.served
    basket, items = _known(service, served, [asked.basket, asked.items])
    new = [item for item in items.items if item not in basket.items]
    if not new:
        raise Refused(422, "items: none of them is known and new to the basket, so there is nothing to learn")
    whole = [*basket.items, *new]
    if not all(type(item) in (str, int) for item in whole):
        raise Refused(422, "only items whose ids are strings or integers can be kept in the feedback log")
    if asked.outcome == "shown":
        write = _impression(served, asked, basket.items, new)
    else:
        write = partial(append_feedback, outcome=asked.outcome, items=whole, judged=len(new), id=asked.id)
    await service.store(asked.outcome, write)
    return as_json({"stored": True, "unknown": [*basket.unknown, *items.unknown]})


def _impression(
    served: Served, asked: schemas.FeedbackRequest, basket: list[Hashable], shown: list[Hashable]
) -> Callable[..., None]:
    """What writes an impression: the known items that were shown, in their places, and what of them was taken."""
    places: dict[Hashable, int] = {}
    for place, item in zip(asked.positions or range(len(asked.items)), asked.items, strict=True):
        for known in served.ids.resolve([item]).items:
            places.setdefault(known, place)
    taken = [item for item in served.ids.resolve(asked.taken or []).items if item in shown]
    positions = [places[item] for item in shown]
    return partial(append_impression, basket=basket, shown=shown, taken=taken, positions=positions, id=asked.id)


# -- The catalogue -------------------------------------------------------------------------------


@router.get("/v1/items", response_model=schemas.ItemsAnswer, responses=ERRORS)
async def items(
    request: Request,
    query: Annotated[str, Query(max_length=100)] = "",
    limit: Annotated[int, Query(ge=1)] = 20,
) -> Response:
    """Find items: first those whose name or id starts with the query, then those that contain it."""
    service, served = _present(request)
    _at_most("limit", limit, service.limits.suggestions)
    hits = served.search.find(query, limit)
    found = _with_probability(served, [served.items[code] for code in hits.codes])
    return as_json({"items": found, "more": hits.more})


@router.post("/v1/items", response_model=schemas.NewItemsAnswer, responses=ERRORS | DENIED)
async def new_items(request: Request, token: Token, asked: schemas.NewItemsRequest) -> Response:
    """Add items that never sold, by their features, to the model and its file; answered when they are served."""
    service, served = _present(request)
    service.check_token(token.credentials if token else None)
    _at_most("the number of items", len(asked.items), service.limits.listed_items)
    if getattr(served.model, "explained_", None) is None:
        raise Refused(422, "this model was not fitted with item_features: it cannot tell of new items")
    ids = [one.item for one in asked.items]
    names, categories = (
        {one.item: told for one in asked.items if (told := getattr(one, kind))} for kind in ("name", "category")
    )
    features = {one.item: one.features for one in asked.items}

    def add(model: Any) -> None:
        model.add_items(ids, features, names=names, categories=categories)

    try:
        await service.slow.run(lambda: service.reloader.change(add))
    except ModelFileError as error:
        raise Refused(503, f"the items could not be added: {error}") from error
    except (DataError, ParameterError) as error:  # it may name items, which an answer does not repeat
        raise Refused(422, ITEMS_REFUSED) from error
    answer = {"model": service.served.version, "added": len(ids), "n_items": len(service.served.items)}
    return as_json(answer)


@router.get("/v1/map", response_model=schemas.MapAnswer, responses=ERRORS)
async def catalogue_map(
    request: Request,
    items: Annotated[list[str] | None, Query(description="Items that must be on it.")] = None,
    limit: Annotated[int, Query(ge=1)] = 300,
) -> Response:
    """The weightiest items in two dimensions, substitutes side by side."""
    service, served = _present(request)
    _at_most("limit", limit, service.limits.map_items)
    _at_most("the number of items", len(items or []), service.limits.map_items)
    asked = served.ids.resolve(items or [])
    codes, places = await service.slow.run(
        lambda: served.places([served.items.code(item) for item in asked.items], limit)
    )
    shown = [served.items[code] for code in codes]
    points = [
        {"item": served.ids.public(item), "name": served.items.name(item), "x": round(x, 4), "y": round(y, 4),
         "weight": served.weight(item)}
        for item, (x, y) in zip(shown, places.tolist(), strict=True)
    ]  # fmt: skip
    return as_json({"model": served.version, "points": points, "unknown": asked.unknown})


# -- The service itself --------------------------------------------------------------------------


@router.get("/v1/model", response_model=schemas.ModelAnswer, responses=ERRORS)
async def model(request: Request) -> Response:
    """Which model is served, what became of the last reload, and what a request may ask for."""
    service, served = _present(request)
    reloader = service.reloader
    return as_json(
        {
            "api": "v1", "contradpp": contradpp.__version__, "model": type(served.model).__name__,
            "version": served.version, "loaded": served.loaded, "n_items": len(served.items),
            "n_components": int(served.model.item_factors_.shape[1]), "expected_size": served.expected_size,
            "diversity": served.model.default_diversity,
            "reload": {"reloads": reloader.reloads, "failures": reloader.failures, "error": reloader.error},
            "limits": asdict(service.limits), "feedback": service.settings.feedback is not None,
            "token_required": service.settings.token is not None,
        }
    )  # fmt: skip


@router.post("/v1/reload", response_model=schemas.ReloadAnswer, responses=ERRORS | DENIED)
async def reload(request: Request, token: Token) -> Response:
    """Look at the model file now. With several workers, the others follow when they next look."""
    service: Service = request.app.state.service
    service.check_token(token.credentials if token else None)
    try:
        changed = await service.slow.run(service.reloader.reload)
    except ModelFileError as error:
        raise Refused(503, f"the model file cannot be used, the model before it stays: {error}") from error
    return as_json({"version": service.served.version, "changed": changed})


@router.get("/healthz", response_model=schemas.Ready, tags=["operation"])
async def healthz() -> Response:
    """Whether the process answers at all."""
    return as_json({"ready": True})


@router.get(
    "/readyz", response_model=schemas.Ready, responses={503: {"model": schemas.ErrorAnswer}}, tags=["operation"]
)
async def readyz(request: Request) -> Response:
    """Whether there is a model to ask."""
    if request.app.state.service.reloader.served is None:
        return refusal(503, "there is no model yet")
    return as_json({"ready": True})


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}, tags=["operation"])
async def metrics(request: Request) -> Response:
    """Counters and latencies for Prometheus."""
    service: Service = request.app.state.service
    served = service.reloader.served
    text = service.counters.text(
        model_ready=served is not None,
        model_items=0 if served is None else len(served.items),
        model_file_bad=service.reloader.error is not None,
    )
    return Response(text, media_type="text/plain; version=0.0.4")


# -- Helpers -------------------------------------------------------------------------------------


def _present(request: Request) -> tuple[Service, Served]:
    """The service, and the model that answers this request from beginning to end."""
    service: Service = request.app.state.service
    return service, service.served


def _at_most(what: str, value: int, most: int) -> None:
    if value > most:
        raise Refused(422, f"{what} is {value:,}, more than the {most:,} that this server allows")


def _known(service: Service, served: Served, baskets: list[list[str | int]]) -> list[Known]:
    _at_most("the number of baskets", len(baskets), service.limits.batch)
    for number, basket in enumerate(baskets):
        _at_most(f"the length of basket {number}", len(basket), service.limits.basket_items)
    return [served.ids.resolve(basket) for basket in baskets]


def _listed(service: Service, served: Served, what: str, items: list[str | int]) -> list[Hashable]:
    _at_most(f"the length of {what}", len(items), service.limits.listed_items)
    return served.ids.resolve(items).items


async def _each(service: Service, served: Served, known: list[Known], answers: list[dict[str, Any]]) -> Response:
    """An entry per basket; a long answer is written in a thread."""

    def write() -> Response:
        results = ({"unknown": one.unknown, **answer} for one, answer in zip(known, answers, strict=True))
        return as_json_of_many({"model": served.version}, "results", results)

    return await service.place(write, WRITTEN * sum(len(answer.get("suggestions", ())) + 1 for answer in answers))


def _named(served: Served, items: Iterable[Hashable], shares: Iterable[float | None]) -> list[dict[str, Any]]:
    return [
        {"item": served.ids.public(item), "name": served.items.name(item), "probability": share}
        for item, share in zip(items, shares, strict=True)
    ]


def _suggesting(
    request: Request, asked: schemas.RecommendRequest | schemas.SlateRequest
) -> tuple[Service, Served, list[Known], dict[str, Any]]:
    """Who answers, the baskets, and which items may be suggested."""
    service, served = _present(request)
    _at_most("n", asked.n, service.limits.suggestions)
    known = _known(service, served, asked.all)
    return service, served, known, _among(service, served, asked)


def _among(
    service: Service, served: Served, asked: schemas.RecommendRequest | schemas.SlateRequest | schemas.CompleteRequest
) -> dict[str, Any]:
    """Which items may be suggested."""
    exclude = _listed(service, served, "exclude", asked.exclude)
    candidates = None if asked.candidates is None else _listed(service, served, "candidates", asked.candidates)
    return {"candidates": candidates, "exclude": exclude}


async def _suggestions(
    service: Service, served: Served, baskets: list[list[Hashable]], found: list[Ranked], *, why: bool
) -> list[dict[str, Any]]:
    """An answer for each basket, with what speaks for each suggestion if someone asks and the model knows."""

    def name_all() -> list[dict[str, Any]]:
        return [{"problem": one.problem, "suggestions": _named(served, *one[:2])} for one in found]

    answers = await service.place(name_all, WRITTEN * sum(len(one.items) for one in found))

    def give_reasons() -> None:
        for basket, one, answer in zip(baskets, found, answers, strict=True):
            for told, suggestion in zip(served.reasons(basket, one.items), answer["suggestions"], strict=False):
                suggestion["because"] = [
                    {"item": served.ids.public(item), "name": served.items.name(item), "nats": nats}
                    for item, nats in told.by_item.items()
                ]
                suggestion["popular"] = told.popular

    if why:
        most = max((len(one.items) for one in found), default=0)
        await service.run(give_reasons, served.explaining_cost(baskets, most))
    return answers


def _with_probability(served: Served, items: list[Hashable]) -> list[dict[str, Any]]:
    """Items with P(item in Y)."""
    return _named(served, items, map(served.weight, items))
