"""What requests and answers look like, version 1: the types behind `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from contradpp.serve.options import Limits

Item = StrictStr | StrictInt
Basket = Annotated[list[Item], Field(description="Ids or names; duplicates are ignored.", examples=[["tea", "milk"]])]
Count = Annotated[int, Field(strict=True)]
Why = Annotated[bool, Field(strict=True, description="Say which items of the basket speak for each suggestion.")]


class Request(BaseModel):
    """A request: a field that is not in its schema is an error, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    """An answer."""


# -- Requests ------------------------------------------------------------------------------------


class BasketsRequest(Request):
    """One basket or many."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"oneOf": [{"required": ["basket"]}, {"required": ["baskets"]}]}
    )

    basket: Basket = Field(default_factory=list, description="One basket ...")
    baskets: list[Basket] = Field(default_factory=list, description="... or many.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if ("basket" in self.model_fields_set) == ("baskets" in self.model_fields_set):
            raise ValueError("give either `basket` or `baskets`")
        return self

    @property
    def all(self) -> list[list[str | int]]:
        """The baskets as a list, whichever way they came."""
        return [self.basket] if "basket" in self.model_fields_set else self.baskets


class RecommendRequest(BasketsRequest):
    """What goes with these baskets?"""

    n: Count = Field(default=10, ge=1, description="How many suggestions for each basket.")
    exclude: list[Item] = Field(default_factory=list, description="Never suggest these.")
    candidates: list[Item] | None = Field(default=None, description="Suggest only from these.")
    rank_by: Literal["probability", "lift"] | Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = Field(
        default="probability",
        description="lift: what the basket makes likelier than it is anyway; a number: how much popularity is damped.",
    )
    why: Why = False


Diversity = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Most = Annotated[int, Field(strict=True, ge=0)]


class SlateRequest(BasketsRequest):
    """What goes with these baskets, without more of the same?"""

    n: Count = Field(default=10, ge=1, description="How many items for each basket.")
    diversity: Diversity | None = Field(
        default=None, description="0: relevance only. 1: variety only. null: what the model has learned, or 0.3."
    )
    at_most: Most | dict[str, Most] | None = Field(default=None, description="Items of each category, or of some.")
    exclude: list[Item] = Field(default_factory=list, description="Never suggest these.")
    candidates: list[Item] | None = Field(default=None, description="Suggest only from these.")
    why: Why = False


class RerankRequest(Request):
    """Choose and order k of these candidates of any recommender, relevant and unlike each other."""

    candidates: list[Item] = Field(description="Items; those that the model does not know are unlike everything.")
    scores: list[Annotated[float, Field(ge=-1e100, le=1e100)]] = Field(description="One for each, higher is better.")
    k: Count = Field(default=10, ge=1, description="How many to choose.")
    diversity: Diversity = Field(default=0.5, description="0: relevance only. 1: variety only.")
    vectors: list[list[float]] | None = Field(
        default=None, description="What is alike, a vector for each candidate; left out: the model says it."
    )
    categories: list[str | None] | None = Field(default=None, description="One for each candidate.")
    at_most: Most | dict[str, Most] | None = Field(default=None, description="Items of each category, or of some.")
    at_least: dict[str, Most] | None = Field(default=None, description="Items of some categories.")
    window: Count | None = Field(default=None, ge=1, description="Places in a row that hold a category at most once.")
    given: Basket = Field(default_factory=list, description="On screen already: they repel, and are not chosen.")
    method: Literal["dpp", "mmr", "msd", "window"] = "dpp"
    scale: Literal["rank", "linear", "log", "raw"] = Field(default="rank", description="What scores mean.")

    @model_validator(mode="after")
    def _one_for_each(self) -> Self:
        for name in ("scores", "vectors", "categories"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.candidates):
                raise ValueError(f"there must be as many {name} as candidates")
        return self


class CompleteRequest(Request):
    """Which items would make this basket a good set?"""

    basket: Basket = Field(default_factory=list)
    size: Count | None = Field(default=None, ge=0, description="Size of the whole set; left out: the basket and `n`.")
    n: Count = Field(default=10, ge=0, description="How many items to add, unless `size` says it.")
    variety: float = Field(
        default=0.5, ge=0.0, le=1.0, allow_inf_nan=False,
        description="0: more like this, every addition by how well it goes with the basket. 0.5: the greedy most "
        "likely set. 1: what is least like the earlier additions.",
    )  # fmt: skip
    exclude: list[Item] = Field(default_factory=list, description="Never add these.")
    candidates: list[Item] | None = Field(default=None, description="Add only these.")


class ScoreRequest(BasketsRequest):
    """How probable are these baskets?"""


class SampleRequest(Request):
    """Draw sets from the model."""

    n_samples: Count = Field(default=1, ge=1, description="How many sets.")
    size: Count | None = Field(default=None, ge=0, description="Only sets of this size; it counts the given items.")
    given: Basket = Field(default_factory=list, description="Items that every set contains.")
    seed: Count | None = Field(default=None, ge=0, lt=2**63, description="For the same sets again.")


class FeedbackRequest(Request):
    """Someone took, or turned down, `items` for a basket; or was shown them, and took some or none."""

    outcome: Literal["accepted", "rejected", "shown"]
    items: Annotated[list[Item], Field(min_length=1)]
    basket: Basket = Field(default_factory=list)
    taken: list[Item] | None = Field(default=None, description="With `shown`: what of the items was taken.")
    positions: list[Annotated[Count, Field(ge=0)]] | None = Field(
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
    """An item that never sold, and what it is like."""

    item: Item
    features: dict[str, StrictStr | StrictBool | float | None] | list[float] | None = Field(
        default=None,
        description="By name, as in the table that the model was fitted with, or a vector if it had those.",
    )
    name: str | None = Field(default=None, description="What people call it.")
    category: str | None = None


class NewItemsRequest(Request):
    """Add items that the model does not know."""

    items: Annotated[list[NewItem], Field(min_length=1)]


# -- Answers -------------------------------------------------------------------------------------


class Reason(Answer):
    """An item of the basket, and how much it speaks for a suggestion, in nats."""

    item: str | int
    name: str
    nats: float


class Suggestion(Answer):
    """An item, what people call it, and P(next = item | basket)."""

    item: str | int
    name: str
    probability: float = Field(ge=0.0, le=1.0)
    because: list[Reason] | None = Field(default=None, description="With `why`: what speaks for it, the most first.")
    popular: bool | None = Field(default=None, description="With `why`: whether it is among the items that sell most.")


class BasketAnswer(Answer):
    """What every answer about one basket says."""

    unknown: list[str | int] = Field(description="Items of the basket that the model does not know; left out.")
    problem: str | None = Field(default=None, description="Why there is no answer, or not a whole one.")


class Suggestions(BasketAnswer):
    """Suggestions for one basket, best first."""

    suggestions: list[Suggestion]


class RecommendAnswer(Answer):
    """An entry per basket."""

    model: str = Field(description="Which model answered: the `version` of /v1/model.")
    results: list[Suggestions]


class Chosen(Answer):
    """An item of a slate with the score that was sent."""

    item: str | int
    position: int = Field(ge=0, description="Where it stood among the candidates.")
    score: float


class RerankAnswer(BasketAnswer):
    """The slate in its order; `problem` says why it is shorter than k, if it is."""

    model: str
    slate: list[Chosen]


class CompleteAnswer(Suggestions):
    """The additions in the order in which they were chosen, and log P of the whole set."""

    model: str
    log_probability: float | None = Field(description="null: the set is impossible.")


class Score(BasketAnswer):
    """log P of one basket's known items."""

    log_probability: float | None = Field(description="null: the set is impossible.")


class ScoreAnswer(Answer):
    """An entry per basket."""

    model: str
    results: list[Score]


class NamedItem(Answer):
    """An item, what people call it, and P(item in Y)."""

    item: str | int
    name: str
    probability: float = Field(ge=0.0, le=1.0)


class SampleAnswer(BasketAnswer):
    """The sets that were drawn, the given items first in each."""

    model: str
    results: list[list[NamedItem]]


class FeedbackAnswer(Answer):
    """The event is on the disk."""

    stored: Literal[True] = True
    unknown: list[str | int]


class ItemsAnswer(Answer):
    """Items that match a query: first those that start with it, then those that contain it."""

    items: list[NamedItem]
    more: bool = Field(description="Whether there are more than were asked for.")


class NewItemsAnswer(Answer):
    """The model that is served with the new items in it."""

    model: str = Field(description="Its version.")
    added: int
    n_items: int


class Point(Answer):
    """An item's place on the map; `weight` is P(item in Y), or what that would be if items ignored each other."""

    item: str | int
    name: str
    x: float
    y: float
    weight: float


class MapAnswer(Answer):
    """The catalogue in two dimensions, x and y within −1..1."""

    model: str
    points: list[Point]
    unknown: list[str | int]


class ReloadState(Answer):
    """The last look at the model file."""

    reloads: int = Field(description="How often a new model took over since the start.")
    failures: int
    error: str | None = Field(description="Why the file that is there now is not served; the model before it is.")


class ModelAnswer(Answer):
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


class ReloadAnswer(Answer):
    """The model that is served after the reload."""

    version: str
    changed: bool


class Ready(Answer):
    """Whether there is a model to ask."""

    ready: bool


class Problem(Answer):
    """What was wrong: a word for programs, a sentence for people."""

    code: str
    message: str


class ErrorAnswer(Answer):
    """Every answer with a status of 400 or more."""

    error: Problem
