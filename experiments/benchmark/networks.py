"""Published models in PyTorch: rows of the benchmark.

All learn with Adam and stop early by a twentieth of their training baskets. None takes more than five minutes: `rounds`
counts operations, so that the result does not depend on the machine, and refuses catalogs that are too large.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import logsumexp
from torch import nn

from contradpp._random import stream
from contradpp._threads import resolve_n_jobs
from contradpp._types import Array, Ints
from contradpp.data.baskets import Baskets, as_baskets
from contradpp.data.sets import Sets, pointers, take_sets
from contradpp.dpp.kernel import Kernel
from contradpp.errors import ParameterError
from contradpp.experts.base import Baseline, softmax_outside
from contradpp.experts.popularity import Popularity
from contradpp.experts.statistics import BasketStatistics
from contradpp.models.nonsymmetric import NonsymmetricDPP

BUDGET = 300 * 1.2e10  # multiplications and additions in five minutes of a core
FEWEST, MOST = 6, 100  # rounds over the training baskets
FEWEST_STEPS = 500  # without a gain, before learning stops
HELD_OUT = 0.05
MOST_HELD = 2000
LARGEST = 100  # items of a basket that are learned from
SHOWN = 30  # items of a basket that a transformer is shown

# -- Training --------------------------------------------------------------------------------------------


def rounds(name: str, operations: float) -> int:
    """Return how many rounds of so many operations fit into the budget; `ParameterError` if they are too few."""
    n = int(BUDGET // max(operations, 1.0))
    if n < FEWEST:
        raise ParameterError(
            f"{name} has a budget of five minutes: {n} rounds over these baskets fit into it, and it needs {FEWEST}"
        )
    return min(n, MOST)


def learn(
    parameters: list[Any],
    loss: Callable[[Ints], Any],
    validation: Callable[[], float],
    n: int,
    *,
    n_rounds: int,
    batch: int = 256,
    learning_rate: float = 1e-3,
    seed: int = 0,
    project: Callable[[], Any] = lambda: None,
) -> int:
    """Minimize the loss of batches of 0..n−1; keep the parameters of the best validation value; return its round."""
    optimizer = torch.optim.Adam(parameters, learning_rate)
    patience = max(4, FEWEST_STEPS * batch // n)  # rounds over few baskets are short
    best, best_round, kept = -np.inf, 0, [one.detach().clone() for one in parameters]
    for number in range(n_rounds):
        order = stream(seed, 101, number).permutation(n)
        for first in range(0, n, batch):
            optimizer.zero_grad()
            loss(order[first : first + batch]).backward()
            optimizer.step()
            project()
        if (value := validation()) > best:
            best, best_round, kept = value, number, [one.detach().clone() for one in parameters]
        if number - best_round >= patience:
            break
    with torch.no_grad():
        for one, values in zip(parameters, kept, strict=True):
            one.copy_(values)
    return best_round + 1


@contextmanager
def torch_of(n_jobs: int | None, seed: int) -> Iterator[None]:
    """Give PyTorch so many threads, and a seed of its own."""
    before = torch.get_num_threads()
    torch.set_num_threads(resolve_n_jobs(n_jobs))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
    torch.set_num_threads(before)


def padded(sets: Sets, width: int | None = None, padding: int = 0) -> tuple[Any, Any]:
    """Return codes (n, width) and a mask of those that are real; of larger sets the first codes."""
    sizes = sets.sizes
    width = int(sizes.max(initial=1)) if width is None else max(min(width, int(sizes.max(initial=1))), 1)
    codes = np.full((sets.count, width), padding, dtype=np.int64)
    place = np.arange(len(sets.indices)) - sets.indptr[sets.owners]
    fits = place < width
    codes[sets.owners[fits], place[fits]] = sets.indices[fits]
    return torch.from_numpy(codes), torch.from_numpy(np.arange(width) < np.minimum(sizes, width)[:, None])


# -- Next items ------------------------------------------------------------------------------------------


class Network(Baseline):
    """A network of logits of all items given a set."""

    n_jobs: int | None = None
    random_state: int = 0
    batch: int = 256
    learning_rate: float = 1e-3

    def _fit(self, statistics: BasketStatistics) -> None:
        train = statistics.train.subset(np.flatnonzero(statistics.train.sizes >= 2)).clip(LARGEST)
        n_rounds = rounds(type(self).__name__, train.n_baskets * self.operations(train))
        rest, held = train.split(HELD_OUT, random_state=self.random_state)
        held = held[:MOST_HELD]
        out = stream(self.random_state, 102).integers(0, held.sizes) + held.indptr[:-1]  # an item of each is left out
        keep = np.ones(len(held.indices), dtype=bool)
        keep[out] = False
        asked = Sets(held.indptr - np.arange(held.n_baskets + 1), held.indices[keep])
        with torch_of(self.n_jobs, self.random_state):
            self.parts_ = self.build(rest)
            self.step_ = 0

            def loss(which: Ints) -> Any:
                self.parts_.train()
                self.step_ += 1
                return self.loss(take_sets(rest.sets, which))

            def validation() -> float:
                logits = np.empty((asked.count, train.n_items))
                self.write_scores(asked, logits)
                p = softmax_outside(logits, asked)[np.arange(asked.count), held.indices[out]]
                return float(np.log(np.maximum(p, 1e-12)).mean())

            self.n_iter_ = learn(
                list(self.parts_.parameters()), loss, validation, rest.n_baskets, n_rounds=n_rounds, batch=self.batch,
                learning_rate=self.learning_rate, seed=self.random_state,
            )  # fmt: skip

    @abstractmethod
    def operations(self, train: Baskets) -> float:
        """Return the operations of learning from a basket."""

    @abstractmethod
    def build(self, train: Baskets) -> Any:
        """Return the parameters, an `nn.ModuleDict`."""

    @abstractmethod
    def loss(self, sets: Sets) -> Any:
        """Return the loss of a batch."""

    @abstractmethod
    def logits(self, sets: Sets) -> Any:
        """Return logits (n_sets, M)."""

    def write_scores(self, sets: Sets, out: Array) -> None:
        self.parts_.eval()
        with torch.no_grad():
            for first in range(0, sets.count, 512):
                part = take_sets(sets, np.arange(first, min(first + 512, sets.count)))
                out[first : first + part.count] = self.logits(part).numpy()

    def _to_probabilities(self, scores: Array, sets: Sets) -> Array:
        return softmax_outside(scores, sets)


@dataclass(eq=False, repr=False)
class MultVAE(Network):
    """Mult-VAE (Liang et al. 2018): a variational autoencoder of baskets with a multinomial likelihood.

    One hidden layer on either side, dropout of half of the input, and β annealed to `beta` over ten rounds.
    """

    TRIED: ClassVar = ({"beta": 0.2}, {"beta": 0.05}, {"beta": 1.0})
    hidden: int = 200
    latent: int = 64
    beta: float = 0.2
    dropout: float = 0.5
    random_state: int = 0
    n_jobs: int | None = None

    def operations(self, train: Baskets) -> float:
        return 6.0 * self.hidden * (train.n_items + 4 * self.latent)

    def build(self, train: Baskets) -> Any:
        self._annealed = 10.0 * -(-train.n_baskets // self.batch)
        parts = nn.ModuleDict({
            "first": nn.EmbeddingBag(train.n_items, self.hidden, mode="sum"),
            "code": nn.Linear(self.hidden, 2 * self.latent),
            "back": nn.Linear(self.latent, self.hidden),
            "last": nn.Linear(self.hidden, train.n_items),
        })  # fmt: skip
        nn.init.xavier_normal_(parts["first"].weight)
        with torch.no_grad():
            parts["last"].bias.copy_(torch.from_numpy(np.log(train.item_counts + 1.0)))
        return parts

    def _codes(self, sets: Sets) -> tuple[Any, Any]:
        parts = self.parts_
        rates = torch.from_numpy((1.0 / np.sqrt(np.maximum(sets.sizes, 1)))[sets.owners]).float()
        rates = nn.functional.dropout(rates, self.dropout, parts.training)
        indices, starts = (torch.from_numpy(one.astype(np.int64)) for one in (sets.indices, sets.indptr[:-1]))
        hidden = torch.tanh(parts["first"](indices, starts, per_sample_weights=rates))
        mean, log_variance = parts["code"](hidden).chunk(2, dim=1)
        return mean, log_variance

    def _decoded(self, z: Any) -> Any:
        return self.parts_["last"](torch.tanh(self.parts_["back"](z)))

    def logits(self, sets: Sets) -> Any:
        return self._decoded(self._codes(sets)[0])

    def loss(self, sets: Sets) -> Any:
        mean, log_variance = self._codes(sets)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        log_p = torch.log_softmax(self._decoded(z), dim=1)
        fit = log_p[torch.from_numpy(sets.owners), torch.from_numpy(sets.indices.astype(np.int64))].sum()
        divergence = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1.0).sum()
        beta = self.beta * min(self.step_ / self._annealed, 1.0)
        return (beta * divergence - fit) / sets.count


@dataclass(eq=False, repr=False)
class SetTransformer(Network):
    """A masked-set transformer: BERT4Rec (Sun et al. 2019) without positions, for sets.

    A random part of a basket is shown, with a query token. The output there predicts all the hidden items, by a softmax
    over the items that are not shown, with the embeddings of the input. All items look at each other.
    """

    TRIED: ClassVar = ({"dropout": 0.2}, {"dropout": 0.4})
    size: int = 64
    layers: int = 2
    heads: int = 2
    dropout: float = 0.2
    random_state: int = 0
    n_jobs: int | None = None

    def operations(self, train: Baskets) -> float:
        width = 1.0 + min(SHOWN, float(np.percentile(train.sizes, 99)))
        return 6.0 * self.size * train.n_items + 6.0 * width * self.layers * 12 * self.size**2

    def build(self, train: Baskets) -> Any:
        M = train.n_items
        layer = nn.TransformerEncoderLayer(
            self.size, self.heads, 4 * self.size, self.dropout, "gelu", batch_first=True, norm_first=True
        )
        parts = nn.ModuleDict({
            "embedding": nn.Embedding(M + 2, self.size, padding_idx=M),
            "layers": nn.TransformerEncoder(layer, self.layers, nn.LayerNorm(self.size), enable_nested_tensor=False),
            "bias": nn.Embedding(M, 1),
        })  # fmt: skip
        with torch.no_grad():
            parts["embedding"].weight.mul_(0.1)
            parts["bias"].weight.copy_(torch.from_numpy(np.log(train.item_counts + 1.0)[:, None]))
        return parts

    def logits(self, sets: Sets) -> Any:
        parts = self.parts_
        M = len(parts["bias"].weight)
        codes, real = padded(sets, LARGEST, M)
        codes = torch.cat([torch.full((sets.count, 1), M + 1), codes], dim=1)
        hidden = torch.cat([torch.zeros(sets.count, 1, dtype=torch.bool), ~real], dim=1)
        out = parts["layers"](parts["embedding"](codes), src_key_padding_mask=hidden)[:, 0]
        return out @ parts["embedding"].weight[:M].T + parts["bias"].weight[:, 0]

    def loss(self, sets: Sets) -> Any:
        rng = stream(self.random_state, 103, self.step_)
        owners = sets.owners
        n_shown = np.minimum((rng.random(sets.count) * sets.sizes).astype(np.int64), SHOWN)
        order = np.lexsort((rng.random(len(owners)), owners))
        place = np.arange(len(owners)) - sets.indptr[owners]
        shown = place < n_shown[owners]
        indices = sets.indices[order]
        logits = self.logits(Sets(pointers(n_shown), indices[shown]))
        inside = torch.from_numpy(owners[shown]), torch.from_numpy(indices[shown].astype(np.int64))
        log_p = torch.log_softmax(logits.index_put(inside, torch.tensor(-1e9)), dim=1)
        hidden = owners[~shown]
        weights = torch.from_numpy(1.0 / (sets.sizes - n_shown)[hidden]).float()
        asked = log_p[torch.from_numpy(hidden), torch.from_numpy(indices[~shown].astype(np.int64))]
        return -(weights * asked).sum() / sets.count


# -- Distributions of sets -------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class FLID(Baseline):
    """FLID (Tschiatschek, Djolonga and Krause 2016): P(A) ∝ exp(Σ_i u_i + Σ_l (max_{i∈A} w_il − Σ_{i∈A} w_il)), w ≥ 0.

    It is learned by noise-contrastive estimation against independent items, `noise` sets for each basket. log Z is then
    estimated by importance sampling from the same independent items.
    """

    TRIED: ClassVar = ({"n_components": 10}, {"n_components": 30})
    n_components: int = 10
    noise: int = 5
    learning_rate: float = 0.002
    n_samples: int = 50_000
    random_state: int = 0
    n_jobs: int | None = None

    def _fit(self, statistics: BasketStatistics) -> None:
        noise = Popularity().fit_statistics(statistics)
        p = noise.probabilities_
        train, held = statistics.train.clip(LARGEST).split(HELD_OUT, random_state=self.random_state)
        held_sets = held[:MOST_HELD].sets
        n_rounds = rounds("FLID", train.n_baskets * (1 + self.noise) * 600.0 * self.n_components * train.sizes.mean())
        drawn = independent_sets(p, self.noise * train.n_baskets, stream(self.random_state, 104))
        against = independent_sets(p, self.noise * held_sets.count, stream(self.random_state, 105))
        with torch_of(self.n_jobs, self.random_state):
            u = torch.from_numpy(np.log(p / (1.0 - np.minimum(p, 1.0 - 1e-9)))).float().requires_grad_()
            w = (0.1 * torch.rand(len(p), self.n_components)).requires_grad_()
            log_ratio = float(np.log(self.noise))
            log_z = torch.tensor(-float(np.log1p(-np.minimum(p, 1.0 - 1e-9)).sum()), requires_grad=True)

            def objective(real: Sets, false: Sets) -> Any:
                margins = [  # log P − log(noise P_noise)
                    self._log_f(u, w, sets) - log_z - torch.from_numpy(noise.log_probability(sets) + log_ratio).float()
                    for sets in (real, false)
                ]
                sigmoid = nn.functional.logsigmoid
                return sigmoid(margins[0]).mean() + self.noise * sigmoid(-margins[1]).mean()

            def loss(which: Ints) -> Any:
                others = (which[:, None] * self.noise + np.arange(self.noise)).ravel()
                return -objective(take_sets(train.sets, which), take_sets(drawn, others))

            def validation() -> float:
                with torch.no_grad():
                    return float(objective(held_sets, against))

            self.n_iter_ = learn(
                [u, w, log_z], loss, validation, train.n_baskets, n_rounds=n_rounds, learning_rate=self.learning_rate,
                seed=self.random_state, project=lambda: w.data.clamp_(min=0.0),
            )  # fmt: skip
        self.u_, self.w_ = u.detach().numpy().astype(np.float64), w.detach().numpy().astype(np.float64)
        samples = independent_sets(p, self.n_samples, stream(self.random_state, 106))
        weights = self._log_weight(samples) - noise.log_probability(samples)
        self.log_z_ = float(logsumexp(weights)) - np.log(self.n_samples)
        shares = np.exp(weights - logsumexp(weights))
        self.effective_samples_ = 1.0 / float(np.square(shares).sum())
        of_sizes = np.bincount(samples.sizes, shares, len(p) + 1) + 1e-12  # larger sets than any sample are possible
        self.log_size_distribution = np.log(of_sizes / of_sizes.sum())

    @staticmethod
    def _log_f(u: Any, w: Any, sets: Sets) -> Any:
        codes, real = padded(sets)
        values = w[codes].masked_fill(~real[..., None], 0.0)
        return (u[codes] * real).sum(dim=1) + (values.amax(dim=1) - values.sum(dim=1)).sum(dim=1)

    def _log_weight(self, sets: Sets) -> Array:
        """Return log P(A) + log Z."""
        out = np.empty(sets.count)
        for first in range(0, sets.count, 1024):
            part = take_sets(sets, np.arange(first, min(first + 1024, sets.count)))
            u, w = torch.from_numpy(self.u_), torch.from_numpy(self.w_)
            out[first : first + part.count] = self._log_f(u, w, part).numpy()
        return out

    def log_probability(self, sets: Sets) -> Array:
        return np.asarray(self._log_weight(sets) - self.log_z_)

    def write_scores(self, sets: Sets, out: Array) -> None:
        out[:] = self.u_ - self.w_.sum(axis=1)
        for w in self.w_.T:
            most = np.zeros(sets.count)
            np.maximum.at(most, sets.owners, w[sets.indices])
            out += np.maximum(w - most[:, None], 0.0)

    def _to_probabilities(self, scores: Array, sets: Sets) -> Array:
        return softmax_outside(scores, sets)


def independent_sets(p: Array, n: int, rng: np.random.Generator) -> Sets:
    """Draw n sets that hold item i with probability p_i, independently."""
    rows = [rng.choice(n, size, replace=False, shuffle=False) for size in rng.binomial(n, np.minimum(p, 1.0)).tolist()]
    codes = np.repeat(np.arange(len(p), dtype=np.int32), [len(row) for row in rows])
    owners = np.concatenate(rows)
    order = np.argsort(owners, kind="stable")
    return Sets(pointers(np.bincount(owners, minlength=n)), codes[order])


class PublishedNDPP(NonsymmetricDPP):
    """The nonsymmetric DPP of Gartrell et al. (2019; 2021), trained as published: L = V Vᵀ + B (D − Dᵀ) Bᵀ.

    Adam maximizes the mean of log det L_A − log det(I + L), less α/2 Σ_i (‖v_i‖² + ‖b_i‖²)/μ_i, μ_i the baskets that
    hold i, from factors drawn uniformly from [0, 1]. The best of `alphas` on held-out baskets is kept; where they
    take too long together, the first is taken.
    """

    def __init__(
        self,
        n_components: int = 30,
        alphas: tuple[float, ...] = (0.1, 0.01, 1.0),
        learning_rate: float = 0.01,
        *,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(n_components, 0, n_jobs=n_jobs, random_state=random_state, verbose=0)
        self.alphas = alphas
        self.learning_rate = learning_rate

    def fit(self, baskets: Any, *_: Any, **__: Any) -> PublishedNDPP:
        """Learn from baskets of at most `n_components` items; of larger ones, the first items."""
        everything = as_baskets(baskets)
        K, M, seed = self.n_components, everything.n_items, int(self.random_state)  # type: ignore[arg-type]
        train, held = everything.clip(K).split(HELD_OUT, random_state=seed)
        batch = 200 if train.n_baskets < 20_000 else 800
        sizes = train.sizes.astype(np.float64)
        per_basket = 8.0 * K * np.square(sizes).mean() + 2.0 * K**2 * sizes.mean()
        operations = 2.0 * (train.n_baskets / batch * 24.0 * M * K**2 + 3.0 * train.n_baskets * per_basket)
        alphas = self.alphas if len(self.alphas) * FEWEST * operations <= BUDGET else self.alphas[:1]
        n_rounds = rounds("the published NDPP", len(alphas) * operations)
        rarity = torch.from_numpy(1.0 / np.maximum(train.item_counts, 1)).double()
        best = -np.inf
        with torch_of(self.n_jobs, seed):
            for alpha in alphas:
                V, B = (torch.rand(M, K, dtype=torch.double, requires_grad=True) for _ in range(2))
                D = torch.randn(K, K, dtype=torch.double, requires_grad=True)

                def loss(which: Ints) -> Any:
                    penalty = 0.5 * alpha * (rarity * (V.square() + B.square()).sum(dim=1)).sum()  # noqa: B023
                    return penalty - log_likelihood(V, B, D, take_sets(train.sets, which)).mean()  # noqa: B023

                def validation() -> float:
                    with torch.no_grad():
                        return float(log_likelihood(V, B, D, held[:MOST_HELD].sets).mean())  # noqa: B023

                found = learn(
                    [V, B, D], loss, validation, train.n_baskets, n_rounds=n_rounds, batch=batch,
                    learning_rate=self.learning_rate, seed=seed,
                )  # fmt: skip
                value = validation()
                if value > best:
                    best, self.alpha_, self.n_iter_ = value, alpha, found
                    inner = torch.block_diag(torch.eye(K), D - D.T).detach().numpy()
                    kept = torch.cat([V, B], dim=1).detach().numpy(), inner
        self._set_kernel(Kernel(*kept), everything.items)
        self.item_counts_ = everything.item_counts.astype(np.float64)
        self.n_baskets_ = float(everything.n_baskets)
        return self


def log_likelihood(V: Any, B: Any, D: Any, sets: Sets) -> Any:
    """Return log det(L_A + 1e-5 I) − log det(I + L) of every set."""
    K = V.shape[1]
    C = D - D.T
    Z = torch.cat([V, B], dim=1)
    inner = torch.block_diag(torch.eye(K, dtype=Z.dtype), C)
    normalizer = torch.linalg.slogdet(torch.eye(2 * K, dtype=Z.dtype) + inner @ (Z.T @ Z))[1]
    order = np.argsort(sets.sizes, kind="stable")  # sets of about the same size are padded to the same
    found = []
    for first in range(0, sets.count, 50):
        codes, real = padded(take_sets(sets, order[first : first + 50]))
        v, b = (factors[codes] * real[..., None] for factors in (V, B))
        L = v @ v.transpose(1, 2) + b @ C @ b.transpose(1, 2)
        found.append(torch.linalg.slogdet(L + torch.diag_embed(torch.where(real, 1e-5, 1.0).double()))[1])
    return torch.cat(found)[torch.from_numpy(np.argsort(order))] - normalizer
