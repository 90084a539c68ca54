"""The schemas of requests, answers and errors, version 1: the types behind `/openapi.json`.

A field that is a parameter of a model's method has that parameter's default and description.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, Self, TypeVar

from fastapi import HTTPException, Response
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    PlainValidator,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

import contradpp
from contradpp.models.base import BaseDPP, DPPRecommender
from contradpp.serve.options import Limits


def parameter(
    method: Callable[..., Any], name: str, *, limit: str | None = None, **options: Any
) -> Any:
    """Return the field of a request that is a parameter of a method.

    Parameters
    ----------
    method : function
        The source of the default and of the description, its first sentence about the parameter.
    name : str
    limit : str, optional
        The limit of the server that bounds the value of the field, or its length.
    **options
        Arguments of `pydantic.Field`; they override the default and the description.
    """
    default = inspect.signature(method).parameters[name].default
    if default is not inspect.Parameter.empty and "default_factory" not in options:
        options.setdefault("default", default)
    pattern = rf"^(?:\w+, )*{name}\b.* : .*\n((?:    .*\n?)+)"
    description = re.search(pattern, inspect.getdoc(method) or "", re.MULTILINE)
    if description is not None:
        first_sentence = re.split(r"(?<=\.) ", " ".join(description[1].split()))[0]
        options.setdefault("description", first_sentence)
    return bounded(limit, **options) if limit else Field(**options)


def bounded(limit: str, **options: Any) -> Any:
    """Return a field whose value or length is bounded by a limit of the server."""
    return Field(json_schema_extra={"limit": limit}, **options)


def check_limits(schema: type[BaseModel], content: Mapping[str, Any], limits: Limits) -> None:
    """Refuse a request with a field beyond its limit."""
    for name, field in schema.model_fields.items():
        if isinstance(field.json_schema_extra, dict):
            value = content.get(name)
            limit = getattr(limits, str(field.json_schema_extra["limit"]))
            if isinstance(value, int):
                check_at_most(name, value, limit)
            elif isinstance(value, list):
                check_at_most(f"the length of {name}", len(value), limit)
    baskets = content.get("baskets")
    for number, basket in enumerate(baskets if isinstance(baskets, list) else ()):
        if isinstance(basket, list):
            check_at_most(f"the length of basket {number}", len(basket), limits.basket_items)


def check_at_most(name: str, value: int, limit: int) -> None:
    """Refuse a request with a value beyond a limit."""
    if value > limit:
        raise HTTPException(422, f"{name} is more than the {limit:,} that this server allows")


# -- Requests ------------------------------------------------------------------------------------

# pydantic makes an error of every wrong entry, which takes seconds for a large body. So lists and
# objects stop at the first one, and lists of items, which are the longest, are left to Python.
T = TypeVar("T")


class _FailFast(FailFast):
    __hash__ = object.__hash__  # members of a union have to have one


def _each_alone(entries: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Check the entries of an object one by one, which stops at the first wrong one."""
    if isinstance(entries, dict):
        for key, value in entries.items():
            check({key: value})
    return check(entries)


def _check_items(items: Any) -> Any:
    """Check that a list has nothing but strings and integers."""
    if not isinstance(items, list):
        raise ValueError("items have to be in a list")
    if not set(map(type, items)) <= {str, int}:
        wrong = next(n for n, item in enumerate(items) if type(item) not in (str, int))
        raise ValueError(f"entry {wrong} is neither a string nor an integer")
    return items


Each = Annotated[list[T], _FailFast()]
ByName = Annotated[dict[str, T], WrapValidator(_each_alone)]
Item = StrictStr | StrictInt
Items = Annotated[list[Item], PlainValidator(_check_items, json_schema_input_type=list[Item])]
Basket = Annotated[
    Items,
    Field(description="Ids or names; duplicates are ignored.", examples=[["tea", "milk"]]),
]
Count = Annotated[int, Field(strict=True)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
NonNegative = Annotated[int, Field(strict=True, ge=0)]
Caps = NonNegative | ByName[NonNegative] | None
ScoreValue = Annotated[float, Field(ge=-1e100, le=1e100)]
recommend_parameter = partial(parameter, DPPRecommender.recommend)
rerank_parameter = partial(parameter, contradpp.rerank)
rule = partial(parameter, contradpp.SlateRules)


class Request(BaseModel):
    """A request; unknown fields are errors, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_no_other_fields(cls, content: Any) -> Any:
        if isinstance(content, dict) and not content.keys() <= cls.model_fields.keys():
            raise ValueError(f"there are other fields than {', '.join(cls.model_fields)}")
        return content


class BasketsRequest(Request):
    """One basket or many."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["basket"]}, {"required": ["baskets"]}]}
    )

    basket: Basket = bounded("basket_items", default_factory=list, description="One basket ...")
    baskets: Each[Basket] = bounded("batch", default_factory=list, description="... or many.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if ("basket" in self.model_fields_set) == ("baskets" in self.model_fields_set):
            raise ValueError("give either `basket` or `baskets`")
        return self

    @property
    def all(self) -> list[list[str | int]]:
        """The baskets as a list."""
        return [self.basket] if "basket" in self.model_fields_set else self.baskets


class WithHistory(Request):
    """A request that may come with the earlier baskets of a customer."""

    history: list[Basket] | None = bounded(
        "history",
        default=None,
        description="The customer's earlier baskets, oldest first; they are not stored.",
    )
    new_only: bool = recommend_parameter("new_only", strict=True)

    @model_validator(mode="after")
    def _history_of_one(self) -> Self:
        if self.new_only and self.history is None:
            raise ValueError("`new_only` needs a `history`")
        if self.history is not None and "baskets" in self.model_fields_set:
            raise ValueError("`history` goes with one `basket`")
        return self


class SuggestRequest(BasketsRequest, WithHistory):
    """A request for suggestions."""

    n: Count = recommend_parameter("N", limit="suggestions", ge=1)
    exclude: Items | None = recommend_parameter("exclude", limit="listed_items")
    candidates: Items | None = recommend_parameter("candidates", limit="listed_items")
    why: bool = Field(
        default=False, strict=True, description="Name the reasons of each suggestion in the basket."
    )

    @property
    def n_entries(self) -> int:
        """The most suggestions and reasons of the answer."""
        n_reasons = sum(map(len, self.all)) if self.why else 0
        return self.n * (len(self.all) + n_reasons)


class RecommendRequest(SuggestRequest):
    """A request for the next items of baskets."""

    rank_by: Literal["probability", "lift"] | Fraction = recommend_parameter("rank_by")


class SlateRequest(SuggestRequest):
    """A request for items that go with baskets and are unlike each other."""

    diversity: Fraction | None = parameter(DPPRecommender.slate, "diversity")
    rank_by: Literal["probability", "lift"] | Fraction = parameter(DPPRecommender.slate, "rank_by")
    at_most: Caps = parameter(DPPRecommender.slate, "at_most")


class RerankRequest(Request):
    """A request to choose and order k candidates of any recommender."""

    candidates: Items = bounded(
        "listed_items",
        description="Ids or names; others are refused without `vectors`, see `unknown`.",
    )
    scores: Each[ScoreValue] = rerank_parameter("scores", limit="listed_items")
    k: Count = rerank_parameter("k", limit="suggestions", ge=1)
    diversity: Fraction = rerank_parameter(
        "diversity", description="0: relevance only. 1: variety only."
    )
    vectors: Each[Each[float]] | ByName[Each[float]] | None = rerank_parameter(
        "vectors",
        limit="listed_items",
        description="One for each candidate, or by item; by default those of the model.",
    )
    categories: Each[str | None] | ByName[str | None] | None = rule(
        "categories", limit="listed_items", description="One for each candidate, or by item."
    )
    at_most: Caps = rule("at_most")
    at_least: ByName[NonNegative] | None = rule("at_least")
    window: Count | None = rule("window", ge=1)
    fixed: ByName[NonNegative] | None = rule("fixed", description="The places of items, from 0.")
    unknown: Literal["error", "ignore"] = rerank_parameter("unknown")
    given: Basket = rerank_parameter("given", limit="basket_items", default_factory=list)
    method: Literal["dpp", "mmr", "msd", "window"] = rerank_parameter("method")
    window_size: Count = Field(
        default=5, ge=1, description='With the method "window": the latest places that repel.'
    )
    scale: Literal["rank", "linear", "log", "raw"] = rerank_parameter("scale")

    @model_validator(mode="after")
    def _one_for_each(self) -> Self:
        for name in ("scores", "vectors", "categories"):
            values = getattr(self, name)
            if isinstance(values, list) and len(values) != len(self.candidates):
                raise ValueError(f"there must be as many {name} as candidates")
        return self


class CompleteRequest(WithHistory):
    """A request to add items to a basket."""

    basket: Basket = bounded("basket_items", default_factory=list)
    size: Count | None = parameter(
        DPPRecommender.complete,
        "size",
        ge=0,
        default=None,
        description="By default the basket and `n`.",
    )
    n: Count = bounded(
        "suggestions", default=10, ge=0, description="Items to add, unless there is a `size`."
    )
    exclude: Items | None = parameter(DPPRecommender.complete, "exclude", limit="listed_items")
    candidates: Items | None = parameter(
        DPPRecommender.complete, "candidates", limit="listed_items"
    )


class ScoreRequest(BasketsRequest):
    """A request for the log probability of baskets."""


class SampleRequest(Request):
    """A request for sets drawn from the model."""

    n_samples: Count = parameter(
        BaseDPP.sample, "n_samples", limit="samples", ge=1, description="How many sets."
    )
    size: Count | None = parameter(BaseDPP.sample, "size", ge=0)
    given: Basket = parameter(BaseDPP.sample, "given", limit="basket_items", default_factory=list)
    seed: Count | None = Field(default=None, ge=0, lt=2**63, description="For the same sets again.")


class FeedbackRequest(Request):
    """A basket with `items` that were accepted, rejected, or shown and partly taken."""

    outcome: Literal["accepted", "rejected", "shown"]
    items: Items = bounded("basket_items", min_length=1)
    basket: Basket = bounded("basket_items", default_factory=list)
    taken: Items | None = bounded(
        "basket_items", default=None, description="With `shown`: the items that were taken."
    )
    positions: Each[NonNegative] | None = Field(
        default=None, description="With `shown`: the place of each item; 0, 1, 2, ... if left out."
    )
    id: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="The sender's name for this event: sent twice, it counts once."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.outcome != "shown" and not (self.taken is None and self.positions is None):
            raise ValueError("`taken` and `positions` go with the outcome `shown`")
        taken = self.taken or []
        if len(set(taken)) < len(taken) or not set(taken) <= set(self.items):
            raise ValueError("`taken` must hold some of `items`, each once")
        positions = self.positions
        if positions is not None and not len(set(positions)) == len(positions) == len(self.items):
            raise ValueError("`positions` must hold a different place for each of `items`")
        return self


class NewItem(Request):
    """An item that never sold, and its features."""

    item: Item
    features: ByName[StrictStr | StrictBool | float | None] | Each[float] | None = Field(
        default=None,
        description="By name as in the table of the fit, or a vector if the fit had vectors.",
    )
    name: str | None = Field(default=None, description="What people call it.")
    category: str | None = None


class NewItemsRequest(Request):
    """A request to add items that the model does not know."""

    items: Each[NewItem] = bounded("listed_items", min_length=1)


FIELDS = {"limit", "query"}.union(
    *(
        one.model_fields
        for one in vars().copy().values()
        if isinstance(one, type) and issubclass(one, Request)
    )
)

# -- Answers -------------------------------------------------------------------------------------

Id = str | int
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
LogProbability = Annotated[float | None, Field(description="null: the set is impossible.")]
Unknown = Annotated[list[Id], Field(description="Items that the model does not know; left out.")]
Problem = Annotated[str | None, Field(description="Why there is no answer, or a partial one.")]
Version = Annotated[str, Field(description="Which model answered: the `version` of /v1/model.")]


class ItemAnswer(BaseModel):
    """An item and its name."""

    item: Id
    name: str


class NamedItem(ItemAnswer):
    """An item and P(item in Y)."""

    probability: Probability


class Reason(ItemAnswer):
    """An item of the basket, and its contribution to the score of a suggestion."""

    nats: float


class Suggestion(ItemAnswer):
    """An item and P(next = item | basket); with `why` its reasons, the strongest first."""

    probability: Probability
    because: list[Reason] | None = None
    popular: bool | None = Field(default=None, description="Suggested because it sells well.")
    bought: int | None = Field(default=None, description="Baskets of the history that hold it.")
    lift: float | None = Field(
        default=None, description="How many times its share of all sales the probability is."
    )
    like: list[Id] | None = Field(
        default=None, description="Items typical of such baskets, where their kind matters."
    )


class Suggestions(BaseModel):
    """Suggestions for one basket, best first; unknown items are those of its history, too."""

    unknown: Unknown
    problem: Problem
    suggestions: list[Suggestion]


class RecommendAnswer(BaseModel):
    """Suggestions for each basket."""

    model: Version
    results: list[Suggestions]


class Chosen(BaseModel):
    """An item, its position among the candidates, and its score."""

    item: Id
    position: int
    score: float


class RerankAnswer(BaseModel):
    """A slate in its order."""

    model: Version
    unknown: Unknown
    problem: Problem
    slate: list[Chosen]


class Score(BaseModel):
    """log P of the known items of a basket."""

    unknown: Unknown
    problem: Problem
    log_probability: LogProbability


class CompleteAnswer(Score):
    """Additions in the order of choice, and log P of the completed set."""

    model: Version
    suggestions: list[Suggestion]


class ScoreAnswer(BaseModel):
    """A score for each basket."""

    model: Version
    results: list[Score]


class SampleAnswer(BaseModel):
    """Sets, the given items first."""

    model: Version
    unknown: Unknown
    problem: Problem
    results: list[list[NamedItem]]


class FeedbackAnswer(BaseModel):
    """A confirmation that the event is on disk."""

    stored: Literal[True]
    unknown: Unknown


class ItemsAnswer(BaseModel):
    """Items, and whether there are more."""

    items: list[NamedItem]
    more: bool


class NewItemsAnswer(BaseModel):
    """The model with the new items."""

    model: Version
    added: int
    n_items: int


class Point(ItemAnswer):
    """A position, x and y within −1..1, and P(item in Y)."""

    x: float
    y: float
    weight: float


class MapAnswer(BaseModel):
    """The catalogue in two dimensions."""

    model: Version
    points: list[Point]
    unknown: Unknown


class ReloadAnswer(BaseModel):
    """The version of the present model."""

    version: str
    changed: bool


class Ready(BaseModel):
    """The state of the process."""

    ready: bool


class Error(BaseModel):
    """A code for programs, and a sentence for people."""

    code: str
    message: str


class ErrorAnswer(BaseModel):
    """An answer with a status of 400 or more; a wrong host name gets plain text."""

    error: Error


class ReloadState(BaseModel):
    """Counts of reloads and of failures, and the error of the present file, if any."""

    reloads: int = 0
    failures: int = 0
    error: str | None = None


class ModelAnswer(BaseModel):
    """The present model."""

    api: Literal["v1"] = "v1"
    contradpp: str
    model: str = Field(description="Its class.")
    version: str = Field(description="Changes with the model file's contents.")
    loaded: str = Field(description="When, in UTC.")
    n_items: int
    n_components: int
    expected_size: float = Field(description="The mean size of the model's sets.")
    diversity: float = Field(description="The default diversity of a slate.")
    reload: ReloadState
    limits: Limits = Field(description="The limits of one request.")
    history: bool = Field(description="True if it uses the earlier baskets of a customer.")
    feedback: bool = Field(description="True if the server stores feedback.")
    token_required: bool = Field(description="True if feedback, new items and reload need a token.")


# -- Errors and JSON -----------------------------------------------------------------------------

# A code for programs and a description for each status.
ERRORS = {
    400: ("bad_request", "Not JSON; or, in plain text, a host name that the server does not have."),
    401: ("unauthorized", "The token is wrong."),
    403: ("foreign_site", "Sent by a page of another site."),
    404: ("not_found", ""),
    405: ("method_not_allowed", ""),
    408: ("too_slow", "The body came too slowly."),
    413: ("too_large", "The body is too long."),
    415: ("not_json", "The body is not declared as JSON."),
    422: ("invalid", "The request is malformed or asks for too much."),
    499: ("gone", ""),
    500: ("internal", ""),
    503: ("unavailable", "There is no model, or too much to do."),
    504: ("timeout", "There was no answer in time."),
    507: ("storage", "The disk is full."),
}


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer to a request that is refused."""
    code = ERRORS.get(status, ("error", ""))[0]
    return as_json({"error": {"code": code, "message": message}}, status, headers)


def parse(schema: type[BaseModel], body: bytes, limits: Limits) -> Any:
    """Read a request from its body; lengths are checked before entries."""
    # Lists and objects, of which Python makes and frees a million a second, in a right request.
    if body.count(b"[") + body.count(b"{") > 2 * limits.listed_items + limits.batch + 100:
        raise HTTPException(400, "the body has more lists and objects than this server allows")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        status = 422 if isinstance(error, json.JSONDecodeError) else 400
        raise HTTPException(status, "the body cannot be read as JSON") from None
    if isinstance(content, dict):
        check_limits(schema, content, limits)
    try:
        request = schema.model_validate(content)
    except ValidationError as error:
        raise HTTPException(422, describe(error.errors(include_input=False))) from None
    check_limits(schema, vars(request), limits)  # defaults, too
    return request


def describe(errors: Iterable[Any]) -> str:
    """Return the first errors, with the names of fields but no keys that a request made up."""
    return "; ".join(
        ".".join(str(part) for part in error["loc"] if isinstance(part, int) or part in FIELDS)
        + f": {error['msg']}"
        for error in list(errors)[:5]
    )


def as_json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer as JSON in ASCII, which can hold half a surrogate pair."""
    return Response(as_text(content), status, headers, media_type="application/json")


def as_json_of_many(version: str, results: Iterable[str]) -> Response:
    """Return a long answer of results that are encoded one by one, so that threads take turns."""
    body = f'{{"model":{as_text(version)},"results":[{",".join(results)}]}}'
    return Response(body, media_type="application/json")


def as_text(content: Any) -> str:
    """Return the JSON of a part of an answer."""
    return json.dumps(content, allow_nan=False, separators=(",", ":"))
