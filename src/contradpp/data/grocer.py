"""A made-up supermarket: substitutes rarely meet in its baskets, complements often do.

A customer has up to three missions (a spaghetti dinner, the laundry, ...) and buys other things by
the way. Need g, which any of several products meets, arrives at the rate

    Σ_m −log(1 − q_mg) + λ popularity_g

over missions m, where q_mg is the chance that m needs g, and λ is the customer's appetite. The
basket holds the needs that arrive before time one. Each need is met by one product, sometimes by
two in proportion to its frequency, so that substitutes meet less often than by chance.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from contradpp._random import RandomState, root_seed, stream
from contradpp._types import Array, Codes, Ints
from contradpp.data.baskets import Baskets
from contradpp.data.sets import pointers
from contradpp.data.vocabulary import Vocabulary
from contradpp.errors import DataError, ParameterError

LARGEST_BASKET = 20

_BLOCK = 4096  # baskets drawn at a time; another number gives other baskets for a seed
_MISSIONS_PER_BASKET = (0.30, 0.43, 0.21, 0.06)  # the chances of 0, 1, 2 and 3 missions
_POPULARITY = {5: 0.28, 4: 0.08, 3: 0.025, 2: 0.009, 1: 0.003}  # rate of a need without a mission
_SPREAD = 0.7  # standard deviation of log λ
_POPULARITY_DECAY = 1.3  # the product at rank w of its need has weight w^-1.3
_TWO_PRODUCTS = 0.04  # rate of two products for one need, relative to the rate of the need
_FAVORITE = 3.5  # log weight of the product that a mission names
_STYLES = {"": 0.72, "(Basics)": 0.18, "organic ": 0.10}  # shares of customers by preferred names
_PREFERRED = 2.0  # log weight of such products for these customers
_OTHERWISE = -0.7  # and for the others


def generate(n_baskets: int = 20_000, *, random_state: RandomState = None) -> Baskets:
    """Draw baskets of 1 to 20 products; the vocabulary has all products.

    Parameters
    ----------
    n_baskets : int
        A longer draw with the same seed begins with the same baskets.
    random_state : int, Generator or None

    Returns
    -------
    Baskets

    Examples
    --------
    >>> B = generate(1000, random_state=0)
    >>> B.n_baskets, "spaghetti" in B.items
    (1000, True)
    """
    if isinstance(n_baskets, bool) or not isinstance(n_baskets, numbers.Integral) or n_baskets < 0:
        raise ParameterError(f"n_baskets must be a whole number of at least 0, got {n_baskets!r}")
    n = int(n_baskets)
    seed = root_seed(random_state)
    blocks = [_draw_block(_shop(), stream(seed, number)) for number in range(-(-n // _BLOCK))]
    sizes = np.concatenate([np.zeros(0, dtype=np.int64), *(sizes for sizes, _ in blocks)])[:n]
    codes = np.concatenate([np.zeros(0, dtype=np.int32), *(codes for _, codes in blocks)])
    indptr = pointers(sizes)
    items = Vocabulary(catalog().products, categories=categories())
    return Baskets(indptr, codes[: indptr[-1]], items)


def categories() -> dict[Hashable, str]:
    """Return the category of each product."""
    return {product: need.category for need in catalog().needs for product in need.products}


@dataclass(frozen=True)
class _Shop:
    """The catalog as arrays: G needs, M missions, at most W products a need."""

    rate: Array  # (G,) of needs without a mission
    mission_weight: Array  # (M,) log frequency
    mission_rate: Array  # (M + 1, G); the last row is no mission
    products: Codes  # (G, W) of each need, padded with the first
    log_weight: Array  # (styles, G, W), -inf in the padding
    favor: Array  # (M + 1, G, W) log weight added by a mission
    second_chance: Array  # (G,) of a second product for the same need


@cache
def _shop() -> _Shop:
    needs = catalog().needs
    missions = catalog().missions
    code = {product: number for number, product in enumerate(catalog().products)}
    width = max(len(need.products) for need in needs)
    mission_rate = np.zeros((len(missions) + 1, len(needs)))
    products = np.zeros((len(needs), width), dtype=np.int32)
    log_weight = np.full((len(_STYLES), len(needs), width), -np.inf)
    favor = np.zeros((len(missions) + 1, len(needs), width))
    for g, need in enumerate(needs):
        products[g] = code[need.products[0]]
        for w, product in enumerate(need.products):
            products[g, w] = code[product]
            log_weight[:, g, w] = -_POPULARITY_DECAY * np.log(w + 1.0)
            for s, style in enumerate(_STYLES):
                if style and style in product:
                    log_weight[:, g, w] += _OTHERWISE
                    log_weight[s, g, w] += _PREFERRED - _OTHERWISE
    for m, mission in enumerate(missions):
        for g, chance in mission.chances.items():
            mission_rate[m, g] = -np.log1p(-chance)
            favor[m, g] = _FAVORITE * np.isin(
                products[g], [code[product] for product in mission.favorites]
            )
    rate = np.array([_POPULARITY[need.popularity] for need in needs])
    frequency = np.array([mission.frequency for mission in missions])
    per_basket = (
        np.dot(_MISSIONS_PER_BASKET, range(len(_MISSIONS_PER_BASKET))) * frequency / frequency.sum()
    )
    arises = rate + per_basket @ -np.expm1(-mission_rate[:-1])  # roughly the share of baskets
    return _Shop(
        rate=rate,
        mission_weight=np.log(frequency),
        mission_rate=mission_rate,
        products=products,
        log_weight=log_weight,
        favor=favor,
        second_chance=_TWO_PRODUCTS * arises * [len(need.products) > 1 for need in needs],
    )


def _draw_block(shop: _Shop, rng: np.random.Generator) -> tuple[Ints, Codes]:
    """Draw the sizes and the product codes of one block of baskets."""
    missions = _draw_missions(shop, rng)  # (n, 3)
    basket, need = _draw_needs(shop, missions, rng)
    style = rng.choice(len(_STYLES), size=_BLOCK, p=list(_STYLES.values()))

    # The two largest of log weight + Gumbel noise are two draws without replacement.
    score = shop.log_weight[style[basket], need]
    score += rng.gumbel(size=score.shape)
    for slot in range(missions.shape[1]):
        score += shop.favor[missions[basket, slot], need]
    ranked = np.argsort(-score, axis=1)[:, :2]
    product = np.take_along_axis(shop.products[need], ranked, axis=1)  # (entries, 2)
    twice = rng.random(len(need)) < shop.second_chance[need]
    basket = np.concatenate([basket, basket[twice]])
    product = np.concatenate([product[:, 0], product[twice, 1]])

    # Products are shuffled within the basket, and baskets cut at the largest size.
    order = np.argsort(basket + rng.random(len(basket)))
    basket = basket[order]
    product = product[order]
    place = np.arange(len(basket)) - np.searchsorted(basket, basket)
    fits = place < LARGEST_BASKET
    return np.bincount(basket[fits], minlength=_BLOCK), product[fits]


def _draw_missions(shop: _Shop, rng: np.random.Generator) -> Ints:
    """Draw up to three distinct missions a basket; the number of missions stands for none."""
    n_missions = len(shop.mission_weight)
    score = shop.mission_weight + rng.gumbel(size=(_BLOCK, n_missions))
    most = len(_MISSIONS_PER_BASKET) - 1
    missions = np.argsort(-score, axis=1)[:, :most]
    count = rng.choice(most + 1, size=_BLOCK, p=_MISSIONS_PER_BASKET)
    return np.where(np.arange(most) < count[:, None], missions, n_missions)


def _draw_needs(shop: _Shop, missions: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw pairs (basket, need) of needs that arrive before time one, or at least the first."""
    appetite = rng.lognormal(-(_SPREAD**2) / 2, _SPREAD, size=(_BLOCK, 1))  # λ, of mean one
    rate = appetite * shop.rate + shop.mission_rate[missions].sum(axis=1)
    arrival = rng.exponential(size=rate.shape) / rate
    bought = arrival < 1
    bought[np.arange(_BLOCK), arrival.argmin(axis=1)] = True
    basket, need = np.nonzero(bought)
    return basket, need


# -- Catalog ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """A customer's need, and the products that meet it, the most popular first."""

    category: str
    popularity: int
    products: tuple[str, ...]


@dataclass(frozen=True)
class Mission:
    """A reason to go shopping: chances by need, and products that it names."""

    name: str
    frequency: int
    chances: dict[int, float]
    favorites: tuple[str, ...]


@dataclass(frozen=True)
class Catalog:
    """The needs and missions of the supermarket, in the order of the file."""

    needs: tuple[Need, ...]
    missions: tuple[Mission, ...]

    @property
    def products(self) -> tuple[str, ...]:
        """All products."""
        return tuple(product for need in self.needs for product in need.products)


@cache
def catalog() -> Catalog:
    """Read grocer.txt: lines of needs by category, then missions, which have a "="."""
    text = resources.files("contradpp.data").joinpath("grocer.txt").read_text(encoding="utf-8")
    lines = re.sub(r"\n {2,}", " ", re.sub(r"(?m)^#.*", "", text)).split("\n")
    needs: list[Need] = []
    by_name: dict[str, int] = {}
    category = ""
    for line in lines:
        if not line.startswith(" "):
            category = line or category
        if not line.startswith(" ") or " = " in line:
            continue
        popularity, _, entries = line.strip().partition(" ")
        for entry in entries.split(";"):
            name, _, members = entry.strip().partition(":")
            products = tuple(product.strip() for product in (members or name).split("|"))
            by_name[name] = len(needs)
            needs.append(Need(category, int(popularity), products))
    by_product = {product: number for number, need in enumerate(needs) for product in need.products}
    missions = [_mission(line, by_name, by_product) for line in lines if " = " in line]
    return Catalog(tuple(needs), tuple(missions))


def _mission(line: str, needs: dict[str, int], by_product: dict[str, int]) -> Mission:
    head, _, body = line.strip().partition(" = ")
    frequency, _, name = head.partition(" ")
    chances: dict[int, float] = {}
    favorites = []
    for entry in body.split(","):
        wanted, _, percent = entry.strip().rpartition(" ")
        if wanted in by_product:
            favorites.append(wanted)
        elif wanted not in needs:
            raise DataError(f"mission {name!r} wants {wanted!r}, which is neither product nor need")
        chances[by_product[wanted] if wanted in by_product else needs[wanted]] = int(percent) / 100
    return Mission(name, int(frequency), chances, tuple(favorites))
