"""The parameters of a kernel L = D + V Vᵀ + S while they are learned, and their start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from contradpp._random import PATTERN, START, root_seed, stream
from contradpp._threads import Scratch, over_parts, results_of_blocks
from contradpp._types import Array, Codes, Ints
from contradpp.data.sets import Sets, pointers
from contradpp.dpp import compiled
from contradpp.dpp.cooccurrence import co_occurrences, regress_on_neighbors
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.linalg import gram, times
from contradpp.errors import ParameterError
from contradpp.learn.checkpoints import checkpointed

if TYPE_CHECKING:
    from contradpp.learn.params import Params, Problem, TrainingData

Counts = Array | Ints  # labels other than one make them fractions
SETS_PER_BLOCK = 64
NUMBERS_PER_BLOCK = 2**15  # of a vector: intermediate results stay in the cache of a core
ROWS_PER_BLOCK = 512  # two such blocks of rows, old and new, stay in the cache of a core

PRIOR_OFFERS = 10.0  # offers of an item before its own rate counts for more than the overall rate
MOST_PARAMETERS = 20_000  # that are learned to the last digit
ON_DIAGONAL = 0.9  # the share of an item's weight that the diagonal has at the start
NEARLY_ALL = 0.99  # for a start as likely as popularity: random directions cost likelihood
LITTLE = 0.1  # for choices: one is taken of many similar items, and only V keeps items apart
INVERTIBLE = 6000  # up to this many items the co-occurrence matrix is inverted
RIDGE = 200.0  # λ of that inverse, and of the regressions that replace it in larger catalogs
NEIGHBORS = 50  # items in such a regression
STRENGTH = 0.3  # of the attraction at the start
MOST = 4  # × n_skew: the most neighbors in S of an item that many others choose


@dataclass(frozen=True)
class SkewPattern:
    """The pattern of a skew matrix S, as a CSR with (i, j) and (j, i), and a parameter per pair."""

    indptr: Ints
    columns: Codes
    pair: Codes  # (nnz,): the parameter of an entry
    signs: Array  # (nnz,): ±1, opposite for (i, j) and (j, i)
    start: Array  # (n_pairs,): log |s_ij| at the start

    @cached_property
    def ends(self) -> tuple[Ints, Ints]:
        """The two items of every pair."""
        rows = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        upper = rows < self.columns
        one = np.empty(len(self.start), dtype=np.int64)
        other = np.empty_like(one)
        one[self.pair[upper]] = rows[upper]
        other[self.pair[upper]] = self.columns[upper]
        return one, other

    def with_neighbors(self, rows: Codes) -> Sets:
        """Return one set: the items, then the neighbors in S of each in turn."""
        sizes = np.diff(self.indptr)[rows]
        offsets = pointers(sizes)
        entries = np.repeat(self.indptr[rows] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Sets.one(np.concatenate([rows, self.columns[entries]]))

    def matrix(self, pairs: Array) -> Any:
        """Return S as a SciPy CSR array, for parameters log |s_ij|."""
        from scipy.sparse import csr_array

        values = self.signs * np.exp(pairs)[self.pair]
        return csr_array((values, self.columns, self.indptr), shape=(len(self.indptr) - 1,) * 2)

    @classmethod
    def of_matrix(cls, matrix: Any, n_items: int) -> SkewPattern:
        """Return the pattern of a skew matrix, in a catalog that may have more items."""
        from scipy.sparse import triu

        upper = triu(matrix, k=1).tocoo()
        i = upper.row.astype(np.int64)
        j = upper.col.astype(np.int64)
        return cls.of_pairs(i, j, np.sign(upper.data), np.log(np.abs(upper.data)), n_items)

    @classmethod
    def from_pairs(cls, i: Ints, j: Ints, squares: Array, n_items: int, seed: int) -> SkewPattern:
        """Make a pattern of pairs i < j with s_ij² at the start, and random signs."""
        signs = np.where(stream(seed).random(len(i)) < 0.5, 1.0, -1.0)
        return cls.of_pairs(i, j, signs, 0.5 * np.log(squares), n_items)

    @classmethod
    def of_pairs(cls, i: Ints, j: Ints, signs: Array, start: Array, n_items: int) -> SkewPattern:
        """Make a pattern of distinct pairs, with the sign of s_ij and log |s_ij| at the start."""
        row = np.concatenate([i, j])
        column = np.concatenate([j, i])
        pair = np.tile(np.arange(len(i), dtype=np.int32), 2)
        order = np.lexsort((column, row))
        indptr = pointers(np.bincount(row, minlength=n_items))
        columns = column[order].astype(np.int32)
        return cls(indptr, columns, pair[order], np.concatenate([signs, -signs])[order], start)


_NO_CODES = np.empty(0, np.int32)
NO_SKEW = SkewPattern(np.zeros(1, np.int64), _NO_CODES, _NO_CODES, np.empty(0), np.empty(0))


@dataclass
class State:
    """The parameters under training; work over sets uses `n_jobs` threads and never depends on it.

    Optimizers write to `V`, `log_d` and `pairs`, and then call `changed` or `rows_changed`.

    Attributes
    ----------
    V : ndarray (M, K)
        In float64, or float32 for half of the memory: kernels make a row float64 to compute.
    log_d : ndarray (M,)
        log d of every item, empty where there is no diagonal.
    epsilon : float
        Added to the diagonal while annealing; not learned.
    skew : SkewPattern
        The pattern of S.
    pairs : ndarray (n_pairs,)
        log |s_ij| of every pair.
    known_dual : ndarray (K, K) or None
        C = Vᵀ V, where it is known.
    largest : float
        The largest squared norm of the rows that changed last.
    """

    V: Array = checkpointed()
    log_d: Array = checkpointed(default_factory=lambda: np.empty(0))
    skew: SkewPattern = NO_SKEW
    n_jobs: int = 1
    epsilon: float = checkpointed(default=0.0, init=False)
    pairs: Array = checkpointed(init=False)
    squared_norms: Array = checkpointed(init=False)
    known_dual: Array | None = checkpointed(
        default=None, init=False, shape=lambda own: (own.V.shape[1],) * 2
    )
    _norm_blocks: Array | None = checkpointed(
        default=None, init=False, shape=lambda own: (-(-len(own.V) // own.block),)
    )
    _dual_wanted: bool = checkpointed(default=False, init=False)
    _parameters: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        dtype = np.float32 if self.V.dtype == np.float32 else np.float64
        self.V = np.ascontiguousarray(self.V, dtype=dtype)
        self.pairs = self.skew.start.copy()
        self.block = max(64, int(np.sqrt(len(self.V)) / 8))  # items per block of `norm_blocks`
        self.scratch = Scratch()
        self._marked = np.zeros(len(self.V), dtype=bool)
        self._places = np.zeros(len(self.V), dtype=np.int32)
        self.changed()

    # -- The parameters ----------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """M."""
        return len(self.V)

    @property
    def symmetric(self) -> bool:
        """True if there is no S."""
        return not len(self.skew.columns)

    @property
    def diagonal(self) -> Array:
        """d of every item, empty where there is none."""
        if self.epsilon and not len(self.log_d):
            return np.full(self.n_items, self.epsilon)
        return np.exp(self.log_d) + self.epsilon

    @property
    def parameters(self) -> Any:
        """The parameters as kernels take them; to be read again after every change."""
        if self._parameters is None:
            pattern = (self.skew.indptr, self.skew.columns, self._skew_values())
            self._parameters = compiled.gradients.Parameters(self.V, self.diagonal, *pattern)
        return self._parameters

    def _skew_values(self) -> Array:
        """Return s_ij of every entry of S."""
        pattern = self.skew
        sizes = np.empty(len(self.pairs))
        values = np.empty(len(pattern.pair))

        def write_sizes(part: slice) -> None:
            np.exp(self.pairs[part], out=sizes[part])

        def write_values(part: slice) -> None:
            np.multiply(pattern.signs[part], sizes[pattern.pair[part]], out=values[part])

        over_parts(write_sizes, len(sizes), NUMBERS_PER_BLOCK, self.n_jobs)
        over_parts(write_values, len(values), NUMBERS_PER_BLOCK, self.n_jobs)
        return values

    @property
    def kernel(self) -> Kernel:
        """The kernel of the present parameters."""
        return kernel_of(self.V, self.log_d, self.pairs, self.skew, n_jobs=self.n_jobs)

    @property
    def dual(self) -> Array:
        """C = Vᵀ V (K, K), updated with V for as long as every step reads it."""
        if self.known_dual is None:
            self.known_dual = gram(self.V, self.V, self.n_jobs)
        self._dual_wanted = True
        return self.known_dual

    @property
    def norm_blocks(self) -> Array:
        """The squared norms summed over blocks of items, from which items are drawn by norm."""
        if self._norm_blocks is None:
            self._norm_blocks = compiled.draws.norm_blocks(self.squared_norms, self.block)
        return self._norm_blocks

    # -- Changes -----------------------------------------------------------------------------------

    def changed(self) -> None:
        """Take note that all parameters have new values."""
        self.known_dual = self._norm_blocks = self._parameters = None
        self.squared_norms = np.einsum("ik,ik->i", self.V, self.V, dtype=np.float64)
        self.largest = self.squared_norms.max(initial=0.0)

    def refresh(self, epsilon: float | None = None) -> None:
        """Forget derived values after a checkpoint replaced parameters, or with this epsilon."""
        self.epsilon = self.epsilon if epsilon is None else epsilon
        self._parameters = None

    def with_factors(self, V: Array) -> State:
        """Return the same state with other factors."""
        other = State(V, self.log_d, self.skew, self.n_jobs)
        other.refresh(self.epsilon)
        return other

    def tilted(self, tilts: Array) -> State:
        """Return the parameters of E L E, E = diag(exp(tilts / 2)), to be read only."""
        one, other = self.skew.ends
        V = self.V * np.exp(tilts / 2).astype(self.V.dtype)[:, None]
        log_d = self.log_d + tilts if len(self.log_d) else self.log_d
        found = State(V, log_d, self.skew, self.n_jobs)
        found.pairs = self.pairs + (tilts[one] + tilts[other]) / 2
        found.scratch = self.scratch
        found.refresh(self.epsilon)
        return found

    def plus_identity(self) -> State:
        """Return the parameters of I + L, to be read only: they share their arrays with these."""
        other = copy(self)
        other.refresh(self.epsilon + 1.0)
        return other

    def dual_before(self, rows: Codes) -> Array | None:
        """Return C if every step reads it and these rows are few, so that an update pays."""
        return self.known_dual if self._dual_wanted and len(rows) < self.n_items // 2 else None

    def rows_changed(self, rows: Codes, squared_norms: Array, dual: Array | None = None) -> None:
        """Take note that these rows of V, log d and pairs have new values; `dual` is the new C."""
        self.known_dual = dual
        self._dual_wanted = False
        self._parameters = None
        blocks = np.empty(0) if self._norm_blocks is None else self._norm_blocks
        compiled.draws.update_norms(rows, squared_norms, self.squared_norms, blocks, self.block)
        self.largest = squared_norms.max(initial=0.0)

    # -- Work over sets ----------------------------------------------------------------------------

    def over_sets(
        self,
        kernel: Callable[..., object],
        sets: Sets,
        before: tuple[Any, ...],
        after: tuple[Any, ...],
    ) -> None:
        """Run a Numba kernel over blocks of sets.

        The call is kernel(parameters, *before, indptr, indices, first, last, *after). The results
        of a set must not depend on the others: one thread takes all of them as one block.
        """
        parameters = self.parameters
        size = SETS_PER_BLOCK if self.n_jobs > 1 else max(sets.count, 1)

        def work(part: slice) -> None:
            kernel(parameters, *before, sets.indptr, sets.indices, part.start, part.stop, *after)

        first_alone = not _loaded(kernel, self.symmetric)
        over_parts(work, sets.count, size, self.n_jobs, first_alone=first_alone)

    def at_once(self, kernels: Sequence[Any], *tasks: Callable[[], Any]) -> list[Any]:
        """Return the results of tasks, run on a thread each once all kernels are compiled."""
        n_jobs = self.n_jobs if all(map(_loaded, kernels)) else 1
        return results_of_blocks(lambda task: tasks[task](), len(tasks), n_jobs)

    @property
    def _no_gradient(self) -> tuple[Ints | None, Array, Array]:
        """Empty links, rows and numbers, for kernels that compute no gradient."""
        links = None if self.symmetric else np.zeros(1, dtype=np.int64)
        return links, np.empty((0, self.V.shape[1])), np.empty(0)

    def number_rows(self, sets: Sets) -> tuple[Codes, Codes]:
        """Return the distinct items of the sets, ascending, and the place of each entry's item.

        In this order their rows come from memory a tenth faster than in that of the sets.
        """
        self._marked[sets.indices] = True
        rows = np.flatnonzero(self._marked).astype(np.int32)
        slots = np.empty(len(sets.indices), dtype=np.int32)
        compiled.gradients.number_rows(rows, sets.indices, self._marked, self._places, slots)
        return rows, slots

    def terms(self, rows: Codes) -> Any:
        """Return rows of V C and S V and tr L, for the conditional likelihood of these items."""
        K = self.V.shape[1]
        VC = times(self.V, self.dual, self.n_jobs, rows, out=self.scratch("VC", len(rows), K))
        VS = self.scratch("VS", 0 if self.symmetric else len(rows), K)
        if not self.symmetric:
            parameters = self.parameters
            kernel = compiled.gradients.skew_products

            def work(part: slice) -> None:
                kernel(parameters, rows[part], VS[part])

            alone = not _loaded(kernel)
            over_parts(work, len(rows), ROWS_PER_BLOCK, self.n_jobs, first_alone=alone)
        return compiled.gradients.Terms(VC, VS, float(np.trace(self.dual) + self.diagonal.sum()))

    def log_det(self, sets: Sets) -> Array:
        """Return log det L_A of every set."""
        out = np.empty(sets.count)
        links, rows, numbers = self._no_gradient
        after = (out, rows, numbers, numbers)
        self.over_sets(compiled.gradients.log_det_gradients, sets, (links,), after)
        return out

    def log_choice(self, chosen: Sets, offered: Sets) -> Array:
        """Return log P(chosen | offered) = log det L_chosen − log det(I + L_offered) per pair."""
        return self.log_det(chosen) - self.plus_identity().log_det(offered)

    def conditional_log_likelihood(self, sets: Sets) -> Array:
        """Return log P(i | A∖i) for every entry of the sets; NaN where a set is singular."""
        rows, slots = self.number_rows(sets)
        out = np.empty(len(sets.indices))
        links, none, numbers = self._no_gradient
        after = (out, numbers, none, none, none, numbers, numbers, numbers)
        before = (self.terms(rows), slots, links)
        self.over_sets(compiled.gradients.conditional_gradients, sets, before, after)
        return out


def kernel_of(
    V: Array, log_d: Array, pairs: Array, pattern: SkewPattern, *, n_jobs: int = 1
) -> Kernel:
    """Make the kernel of learned parameters."""
    skew = pattern.matrix(pairs) if len(pattern.columns) else None
    return Kernel(V, skew=skew, diagonal=np.exp(log_d) if len(log_d) else None, n_jobs=n_jobs)


def _loaded(kernel: Any, symmetric: bool | None = None) -> bool:
    """Return whether a kernel is compiled or read from the cache, for sets in this form."""
    forms = getattr(kernel, "signatures", None)  # none of a plain function
    return forms is None or any(symmetric in (None, "none" in map(str, form)) for form in forms)


# -- The start -------------------------------------------------------------------------------------


def first_state(problem: Problem, params: Params) -> State:
    """Return the start: known parameters, or popularity and what is bought together."""
    rng = stream(problem.seed, START)
    start = problem.start
    if start is not None:
        if not start.kernel.has_identity_inner:
            raise ParameterError(
                "a kernel with an inner matrix, as from condition(), cannot be trained on"
            )
        V, log_d = enlarged_start(start.kernel, problem.counts, problem.n_baskets, rng)
        skew = NO_SKEW
        if params.n_skew:
            skew = SkewPattern.of_matrix(start.kernel.skew.matrix(), len(V))
        return State(in_training_dtype(V, params), log_d, skew, params.n_jobs)
    counts = problem.counts
    on_diagonal = ON_DIAGONAL
    if params.spec.score == "choice" and problem.data.offered is not None:
        on_diagonal = LITTLE if params.n_components else ON_DIAGONAL
        counts = problem.n_baskets * rates(problem.data, len(counts))
    V = start_factors(params.init, counts, problem.n_baskets, params.n_components, rng)
    log_d = np.empty(0)
    if params.diagonal:
        log_d, V = split_off_diagonal(V, counts, problem.n_baskets, on_diagonal)
    V = in_training_dtype(V, params)
    return State(V, log_d, first_skew_pattern(problem, params), params.n_jobs)


def in_training_dtype(V: Array, params: Params) -> Array:
    """Return V in its type during training: float64 for few parameters, which are refined."""
    few = V.size <= MOST_PARAMETERS
    return V if few else V.astype(params.dtype, copy=False)


def rates(data: TrainingData, n_items: int) -> Array:
    """Return how often each item is taken when it is offered, shrunk to the rate of all items."""
    sets = data.positives
    offered = data.offered or data.positives
    liked = np.maximum(data.weights, 0.0)
    taken, shown = (
        np.bincount(part.indices, weights=np.repeat(liked, part.sizes), minlength=n_items)
        for part in (sets, offered)
    )
    mean = taken.sum() / max(shown.sum(), 1e-300)
    return np.asarray((taken + PRIOR_OFFERS * mean) / (shown + PRIOR_OFFERS), dtype=np.float64)


def first_skew_pattern(problem: Problem, params: Params) -> SkewPattern:
    """Find the pattern of S in the liked baskets."""
    if not params.n_skew:
        return NO_SKEW
    data = problem.data
    liked = data.weights[data.weights > 0]
    n_sets = float(liked.sum())
    together = co_occurrences(data.liked, liked, len(problem.counts), params.n_jobs)
    share = popularity(problem.counts, problem.n_baskets)
    seed = root_seed(stream(problem.seed, PATTERN))
    return find_skew_pattern(
        together, n_sets, share / (1 - share), params.n_skew, seed, n_jobs=params.n_jobs
    )


def popularity(counts: Counts, n_baskets: float) -> Array:
    """Return p̂_i, the share of baskets with item i, clipped to be strictly between 0 and 1.

    An item that never occurs counts as half a basket, and one that always does as all but half.
    """
    n = max(n_baskets, 1)
    share: Array = np.clip(counts.astype(np.float64), 0.5, max(n - 0.5, 0.5)) / n
    return share


def start_factors(
    init: str, counts: Counts, n_baskets: float, n_components: int, rng: np.random.Generator
) -> Array:
    """Return the first V (M, K).

    Parameters
    ----------
    init : {"popularity", "uniform"}
        "popularity": row i has norm sqrt(p̂_i / (1 − p̂_i)), the popularity ranking, and a random
        direction. "uniform": entries from U(1, 2), as LowRankDPP.jl and the paper.
    """
    shape = (len(counts), n_components)
    if init == "uniform":
        return rng.uniform(1.0, 2.0, size=shape)
    V = rng.standard_normal(shape)
    lengths = np.sqrt(np.einsum("ik,ik->i", V, V))
    p = popularity(counts, n_baskets)
    if n_components:
        V *= (np.sqrt(p / (1 - p)) / lengths)[:, None]  # in place: V may be most of the memory
    return V


def split_off_diagonal(
    V: Array, counts: Counts, n_baskets: float, on_diagonal: float = ON_DIAGONAL
) -> tuple[Array, Array]:
    """Return log d and V with d_i + ‖v_i‖² the odds of item i, most on the diagonal."""
    p = popularity(counts, n_baskets)
    odds = p / (1 - p)
    lengths = np.sqrt(np.einsum("ik,ik->i", V, V))
    scale = np.divide(
        np.sqrt((1 - on_diagonal) * odds), lengths, out=np.zeros_like(lengths), where=lengths > 0
    )
    return np.log(on_diagonal * odds), V * scale[:, None]


def enlarged_start(
    kernel: Kernel, counts: Counts, n_baskets: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return V and log d of a kernel with rows for new items, at the kernel's scale."""
    old = kernel.factors.astype(np.float64)
    fresh = start_factors("popularity", counts, n_baskets, old.shape[1], rng)
    share = popularity(counts, n_baskets)
    odds = share / (1 - share)
    weights = kernel.squared_norms
    seen = weights > 0
    stretch = np.exp(np.mean(np.log(weights[seen] / odds[: len(old)][seen]))) if seen.any() else 1.0
    log_d = np.empty(0)
    if kernel.has_diagonal:
        log_d, fresh = split_off_diagonal(fresh, counts, n_baskets)
        log_d += np.log(stretch)
        log_d[: len(old)] = np.log(np.maximum(kernel.diagonal, 1e-300))
    fresh *= np.sqrt(stretch)
    fresh[: len(old)] = old
    return fresh, log_d


# -- Items that attract each other -----------------------------------------------------------------


def find_skew_pattern(
    together: Any, n_sets: float, odds: Array, n_skew: int, seed: int, *, n_jobs: int = 1
) -> SkewPattern:
    """Find for each item the `n_skew` items that it occurs with most beyond chance.

    The start of s_ij² is STRENGTH times the sum of two measures of attraction,

        0.3 P̂_ij max(log P̂_ij/(p̂_i p̂_j), 0)    and    max(−Q_ij, 0)/(n Q_ii Q_jj),

    Q = (Xᵀ X + λI)⁻¹: what i tells about j beyond all other items, or beyond its neighbors in
    catalogs of more than INVERTIBLE items. Then the next-item score of j given a small basket A is
    about d_j + Σ_a s_aj²/d_a, d = p̂/(1 − p̂).
    """
    M = len(odds)
    n = max(n_sets, 1.0)
    counts = together.diagonal()
    i, j, both = repeated_pairs(together)
    if not len(i):
        return SkewPattern.from_pairs(i, j, both, M, seed)
    squares = STRENGTH * 0.3 * both / n * np.maximum(np.log(both * n / (counts[i] * counts[j])), 0)
    if M <= INVERTIBLE:
        squares += STRENGTH * beyond_others(together, i, j, n)
    else:
        squares += STRENGTH * beyond_neighbors(together, counts, i, j, n, n_jobs)
    strong = np.flatnonzero(squares > 0)
    i = i[strong]
    j = j[strong]
    squares = squares[strong]
    chosen = strongest(i, j, squares / np.sqrt(odds[i] * odds[j]), M, n_skew)
    return SkewPattern.from_pairs(i[chosen], j[chosen], squares[chosen], M, seed)


def repeated_pairs(together: Any) -> tuple[Ints, Ints, Array]:
    """Return the pairs i < j that occur more than once, which are few of all, and their counts."""
    entries = np.flatnonzero(together.data > 1.0)
    i = np.searchsorted(together.indptr, entries, side="right") - 1
    j = together.indices[entries].astype(np.int64)
    upper = i < j
    return i[upper], j[upper], together.data[entries[upper]]


def beyond_others(together: Any, i: Ints, j: Ints, n: float) -> Array:
    """Return max(−Q_ij, 0)/(n Q_ii Q_jj) for the pairs, Q = (Xᵀ X + λI)⁻¹."""
    dense = together.toarray()
    dense[np.diag_indices_from(dense)] += RIDGE
    Q = np.linalg.inv(dense)
    diagonal = np.diagonal(Q)
    strength: Array = np.maximum(-Q[i, j], 0.0) / (n * diagonal[i] * diagonal[j])
    return strength


def beyond_neighbors(
    together: Any, counts: Array, i: Ints, j: Ints, n: float, n_jobs: int
) -> Array:
    """Approximate `beyond_others` by the regression B_:j of every item j on its nearest items.

    −Q_ij/(Q_ii Q_jj) = B_ij r_i, where r_i = 1/Q_ii is the residual of n_i. Both directions agree
    if all items are neighbors; else the mean is taken. The diagonal of `together` is removed.
    """
    others = together  # not a copy: it may be most of the memory
    rows_of_entries = np.repeat(np.arange(len(counts), dtype=np.int32), np.diff(others.indptr))
    others.data[others.indices == rows_of_entries] = 0.0
    others.eliminate_zeros()
    indptr = others.indptr.astype(np.int64, copy=False)
    rows = (indptr, others.indices.astype(np.int32, copy=False), others.data)
    B = regress_on_neighbors(*rows, counts, np.full(len(counts), RIDGE), NEIGHBORS, n_jobs).tocsr()
    rest = counts + RIDGE - B.multiply(others).sum(axis=0)
    there = np.asarray(B[i, j]).ravel()
    back = np.asarray(B[j, i]).ravel()
    directions = np.maximum((there != 0).astype(np.float64) + (back != 0), 1.0)
    strength: Array = np.maximum(there * rest[i] + back * rest[j], 0.0) / (n * directions)
    return strength


def strongest(i: Ints, j: Ints, value: Array, n_items: int, n: int) -> Ints:
    """Return the pairs among the n strongest of one item and the MOST × n strongest of the other.

    Without the second bound, an item that sells with everything would be paired with everything.
    """
    ends = np.concatenate([i, j])
    which = np.tile(np.arange(len(i)), 2)
    order = np.lexsort((-value[which], ends))
    first = pointers(np.bincount(ends, minlength=n_items))
    rank = np.empty(len(ends), dtype=np.int64)
    rank[order] = np.arange(len(ends)) - first[ends[order]]
    of_i = rank[: len(i)]
    of_j = rank[len(i) :]
    return np.flatnonzero((np.minimum(of_i, of_j) < n) & (np.maximum(of_i, of_j) < MOST * n))
