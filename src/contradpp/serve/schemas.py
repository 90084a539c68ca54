"""The shapes of requests, answers and errors, version 1: the types behind `/openapi.json`.

A field that is a parameter of a model's method has that parameter's default and description.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from fastapi import HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, create_model, model_validator

import contradpp
from contradpp.models.base import BaseDPP
from contradpp.serve.options import Limits


def of(method: Callable[..., Any], name: str, *, limit: str | None = None, **more: Any) -> Any:
    """Return the field of a request that is a parameter of this method.

    Parameters
    ----------
    method : function
        Its signature has the default, and its docstring the description: the first sentence about the parameter.
    name : str
    limit : str, optional
        The limit of the server that bounds the field: its value, or its length.
    **more
        Bounds of the value, or words for a default or a description that HTTP has otherwise.
    """
    default = inspect.signature(method).parameters[name].default
    if default is not inspect.Parameter.empty and "default_factory" not in more:
        more.setdefault("default", default)
    about = re.search(rf"^(?:\w+, )*{name}\b.* : .*\n((?:    .*\n?)+)", inspect.getdoc(method) or "", re.MULTILINE)
    if about is not None:
        more.setdefault("description", re.split(r"(?<=\.) ", " ".join(about[1].split()))[0])
    return bounded(limit, **more) if limit else Field(**more)


def bounded(limit: str, **more: Any) -> Any:
    """Return a field whose value or length is bounded by a limit of the server."""
    return Field(json_schema_extra={"limit": limit}, **more)


def check_limits(asked: BaseModel, limits: Limits) -> None:
    """Refuse the request if a field of a request is beyond its limit."""
    for name, field in type(asked).model_fields.items():
        if isinstance(field.json_schema_extra, dict):
            value = getattr(asked, name)
            most = getattr(limits, str(field.json_schema_extra["limit"]))
            if isinstance(value, int):
                check_at_most(name, value, most)
            else:
                check_at_most(f"the length of {name}", len(value or ()), most)


def check_at_most(what: str, value: int, most: int) -> None:
    """Refuse the request if a value is beyond a limit."""
    if value > most:
        raise HTTPException(422, f"{what} is {value:,}, more than the {most:,} that this server allows")


# -- Requests ------------------------------------------------------------------------------------

Item = StrictStr | StrictInt
Basket = Annotated[list[Item], Field(description="Ids or names; duplicates are ignored.", examples=[["tea", "milk"]])]
Count = Annotated[int, Field(strict=True)]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Most = Annotated[int, Field(strict=True, ge=0)]


class Request(BaseModel):
    """A request: a field that is not in its schema is an error, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid")


class BasketsRequest(Request):
    """One basket or many."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["basket"]}, {"required": ["baskets"]}]})

    basket: Basket = bounded("basket_items", default_factory=list, description="One basket ...")
    baskets: list[Basket] = bounded("batch", default_factory=list, description="... or many.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if ("basket" in self.model_fields_set) == ("baskets" in self.model_fields_set):
            raise ValueError("give either `basket` or `baskets`")
        return self

    @property
    def all(self) -> list[list[str | int]]:
        """The baskets as a list, whichever way they came."""
        return [self.basket] if "basket" in self.model_fields_set else self.baskets


class SuggestRequest(BasketsRequest):
    """Suggest items for these baskets."""

    n: Count = of(BaseDPP.recommend, "N", limit="suggestions", ge=1)
    exclude: list[Item] | None = of(BaseDPP.recommend, "exclude", limit="listed_items")
    candidates: list[Item] | None = of(BaseDPP.recommend, "candidates", limit="listed_items")
    why: bool = Field(default=False, strict=True, description="Say which items of the basket speak for each one.")


class RecommendRequest(SuggestRequest):
    """Suggest the next items of these baskets."""

    rank_by: Literal["probability", "lift"] | Share = of(BaseDPP.recommend, "rank_by")


class SlateRequest(SuggestRequest):
    """Suggest items that go with these baskets and are unlike each other."""

    diversity: Share | None = of(BaseDPP.slate, "diversity")
    at_most: Most | dict[str, Most] | None = of(BaseDPP.slate, "at_most")


class RerankRequest(Request):
    """Choose and order k of these candidates of any recommender, relevant and unlike each other."""

    candidates: list[Item] = bounded("listed_items", description="Those that the model does not know repel nothing.")
    scores: list[Annotated[float, Field(ge=-1e100, le=1e100)]] = of(contradpp.rerank, "scores")
    k: Count = of(contradpp.rerank, "k", limit="suggestions", ge=1)
    diversity: Share = of(contradpp.rerank, "diversity", description="0: relevance only. 1: variety only.")
    vectors: list[list[float]] | None = of(
        contradpp.rerank, "vectors", description="What is alike, a vector for each candidate; else the model says it."
    )
    categories: list[str | None] | None = of(
        contradpp.rerank, "categories", description="One for each candidate, or none."
    )
    at_most: Most | dict[str, Most] | None = of(contradpp.rerank, "at_most")
    at_least: dict[str, Most] | None = of(contradpp.rerank, "at_least")
    window: Count | None = of(contradpp.rerank, "window", ge=1)
    given: Basket = of(contradpp.rerank, "given", limit="basket_items", default_factory=list)
    method: Literal["dpp", "mmr", "msd", "window"] = of(contradpp.rerank, "method")
    scale: Literal["rank", "linear", "log", "raw"] = of(contradpp.rerank, "scale")

    @model_validator(mode="after")
    def _one_for_each(self) -> Self:
        for name in ("scores", "vectors", "categories"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.candidates):
                raise ValueError(f"there must be as many {name} as candidates")
        return self


class CompleteRequest(Request):
    """Add items to a basket so that it becomes a good set."""

    basket: Basket = bounded("basket_items", default_factory=list)
    size: Count | None = of(
        BaseDPP.complete, "size", ge=0, default=None, description="Of the whole set; left out: the basket and `n`."
    )
    n: Count = bounded("suggestions", default=10, ge=0, description="How many items to add, unless `size` says it.")
    exclude: list[Item] | None = of(BaseDPP.complete, "exclude", limit="listed_items")
    candidates: list[Item] | None = of(BaseDPP.complete, "candidates", limit="listed_items")


class ScoreRequest(BasketsRequest):
    """Ask for the log probability of these baskets."""


class SampleRequest(Request):
    """Draw sets from the model."""

    n_samples: Count = of(BaseDPP.sample, "n_samples", limit="samples", ge=1, description="How many sets.")
    size: Count | None = of(BaseDPP.sample, "size", ge=0)
    given: Basket = of(BaseDPP.sample, "given", limit="basket_items", default_factory=list)
    seed: Count | None = Field(default=None, ge=0, lt=2**63, description="For the same sets again.")


class FeedbackRequest(Request):
    """Someone took, or turned down, `items` for a basket; or was shown them, and took some or none."""

    outcome: Literal["accepted", "rejected", "shown"]
    items: list[Item] = bounded("basket_items", min_length=1)
    basket: Basket = bounded("basket_items", default_factory=list)
    taken: list[Item] | None = bounded(
        "basket_items", default=None, description="With `shown`: what of the items was taken."
    )
    positions: list[Most] | None = Field(
        default=None, description="With `shown`: the place of each item; 0, 1, 2, ... if left out."
    )
    id: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="The sender's name for this event: sent twice, it counts once."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.outcome != "shown" and not (self.taken is None and self.positions is None):
            raise ValueError("`taken` and `positions` go with the outcome `shown`")
        if len(set(self.taken or [])) < len(self.taken or []) or not set(self.taken or []) <= set(self.items):
            raise ValueError("`taken` must hold some of `items`, each once")
        places = self.positions
        if places is not None and (len(places) != len(self.items) or len(set(places)) < len(places)):
            raise ValueError("`positions` must hold a different place for each of `items`")
        return self


class NewItem(Request):
    """An item that never sold, and its features."""

    item: Item
    features: dict[str, StrictStr | StrictBool | float | None] | list[float] | None = Field(
        default=None,
        description="By name, as in the table that the model was fitted with, or a vector if it had those.",
    )
    name: str | None = Field(default=None, description="What people call it.")
    category: str | None = None


class NewItemsRequest(Request):
    """Add items that the model does not know."""

    items: list[NewItem] = bounded("listed_items", min_length=1)


# -- Answers -------------------------------------------------------------------------------------

Id = str | int
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
LogProbability = Annotated[float | None, Field(description="null: the set is impossible.")]
Unknown = Annotated[list[Id], Field(description="Items that the model does not know; left out.")]
Problem = Annotated[str | None, Field(description="Why there is no answer, or not a whole one.")]
Version = Annotated[str, Field(description="Which model answered: the `version` of /v1/model.")]


def answer(name: str, about: str, /, **fields: Any) -> Any:
    """Return the type of an answer with these fields; one that has a default is a pair of type and default."""
    told: dict[str, Any] = {field: kind if isinstance(kind, tuple) else (kind, ...) for field, kind in fields.items()}
    return create_model(name, __doc__=about, **told)


NamedItem: Any = answer(
    "NamedItem", "An item, what people call it, and P(item in Y).", item=Id, name=str, probability=Probability
)
Reason: Any = answer(
    "Reason", "An item of the basket, and how much it speaks for a suggestion.", item=Id, name=str, nats=float
)
Suggestion: Any = answer(
    "Suggestion",
    "An item and P(next = item | basket); with `why` what speaks for it, the most first, and whether it sells most.",
    item=Id, name=str, probability=Probability, because=(list[Reason] | None, None), popular=(bool | None, None),
)  # fmt: skip
Suggestions: Any = answer(
    "Suggestions", "For one basket, best first.", unknown=Unknown, problem=Problem, suggestions=list[Suggestion]
)
RecommendAnswer: Any = answer("RecommendAnswer", "An entry per basket.", model=Version, results=list[Suggestions])
Chosen: Any = answer(
    "Chosen", "An item, its place among the candidates, and its score.", item=Id, position=int, score=float
)
RerankAnswer: Any = answer(
    "RerankAnswer", "The slate in its order.", model=Version, unknown=Unknown, problem=Problem, slate=list[Chosen]
)
CompleteAnswer: Any = answer(
    "CompleteAnswer",
    "The additions in the order in which they were chosen, and log P of the whole set.",
    model=Version, unknown=Unknown, problem=Problem, suggestions=list[Suggestion], log_probability=LogProbability,
)  # fmt: skip
Score: Any = answer(
    "Score", "log P of a basket's known items.", unknown=Unknown, problem=Problem, log_probability=LogProbability
)
ScoreAnswer: Any = answer("ScoreAnswer", "An entry per basket.", model=Version, results=list[Score])
Sets = list[list[NamedItem]]
SampleAnswer: Any = answer(
    "SampleAnswer", "Sets, the given items first.", model=Version, unknown=Unknown, problem=Problem, results=Sets
)
FeedbackAnswer: Any = answer("FeedbackAnswer", "It is on the disk.", stored=Literal[True], unknown=Unknown)
ItemsAnswer: Any = answer("ItemsAnswer", "Items, and whether there are more.", items=list[NamedItem], more=bool)
NewItemsAnswer: Any = answer(
    "NewItemsAnswer", "The model with the new items in it.", model=Version, added=int, n_items=int
)
Point: Any = answer(
    "Point", "A place, x and y within −1..1, and P(item in Y).", item=Id, name=str, x=float, y=float, weight=float
)
MapAnswer: Any = answer(
    "MapAnswer", "The catalogue in two dimensions.", model=Version, points=list[Point], unknown=Unknown
)
ReloadAnswer: Any = answer("ReloadAnswer", "The model that is served now.", version=str, changed=bool)
Ready: Any = answer("Ready", "Whether there is a model to ask.", ready=bool)
Error: Any = answer("Error", "A word for programs, and a sentence for people.", code=str, message=str)
ErrorAnswer: Any = answer(
    "ErrorAnswer", "An answer with a status of 400 or more; that to a wrong host name is plain text.", error=Error
)


class ReloadState(BaseModel):
    """How often a new model took over, how often the file was of no use, and why the present one is, if it is."""

    reloads: int = 0
    failures: int = 0
    error: str | None = None


class ModelAnswer(BaseModel):
    """The model that is served."""

    api: Literal["v1"] = "v1"
    contradpp: str
    model: str = Field(description="Its class.")
    version: str = Field(description="Changes with the model file's contents.")
    loaded: str = Field(description="When, in UTC.")
    n_items: int
    n_components: int
    expected_size: float = Field(description="The mean size of the model's sets.")
    diversity: float = Field(description="That of a slate, unless a request names one.")
    reload: ReloadState
    limits: Limits = Field(description="The most that one request may ask for.")
    feedback: bool = Field(description="Whether feedback is kept.")
    token_required: bool = Field(description="Whether feedback, new items and reload ask for a token.")


# -- Errors and JSON -----------------------------------------------------------------------------

CODES = {
    400: "bad_request", 401: "unauthorized", 403: "foreign_site", 404: "not_found", 405: "method_not_allowed",
    408: "too_slow", 413: "too_large", 415: "not_json", 422: "invalid", 499: "gone", 500: "internal",
    503: "unavailable", 504: "timeout", 507: "storage",
}  # fmt: skip


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer to a request that is refused."""
    return as_json({"error": {"code": CODES.get(status, "error"), "message": message}}, status, headers)


def as_json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer as JSON in ASCII: half a surrogate pair, which UTF-8 cannot hold, goes through too."""
    return Response(_dumped(content), status, headers, media_type="application/json")


def as_json_of_many(version: str, results: Iterable[Any]) -> Response:
    """Return a long answer entry by entry, so that a thread that writes it lets others go on."""
    body = f'{{"model":{_dumped(version)},"results":[{",".join(map(_dumped, results))}]}}'
    return Response(body, media_type="application/json")


def _dumped(content: Any) -> str:
    return json.dumps(content, allow_nan=False, separators=(",", ":"))
