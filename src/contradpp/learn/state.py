"""The parameters of a kernel L = D + V Vᵀ + S while they are learned, and where they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contradpp._random import root_seed, stream
from contradpp._threads import Scratch, results_of_blocks, run_blocks
from contradpp.data.sets import Sets, pointers
from contradpp.dpp import compiled
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.linalg import gram, times
from contradpp.errors import ParameterError
from contradpp.learn.checkpoint import kept

if TYPE_CHECKING:
    from contradpp.learn.params import Params, Problem, TrainingData

Array = NDArray[np.float64]
Codes = NDArray[np.int32]
Positions = NDArray[np.int64]
Counts = NDArray[np.float64] | NDArray[np.int64]  # labels other than one make them fractions
SETS_PER_BLOCK = 64
NUMBERS_PER_BLOCK = 2**15  # of a vector: what is made of them on the way stays in the cache of a core
ROWS_PER_BLOCK = 512  # two such blocks of rows, old and new, stay in the cache of a core

START, SPLIT, TRAIN, UNIFORM, UPDATE, PARTNERS = range(6)  # keys of the random streams
HISTORY = 10.0  # times that an item is offered before its own rate counts for more than that of all
MOST_PARAMETERS = 20_000  # that are learned to the last digit
ON_DIAGONAL = 0.9  # the share of an item's weight that the diagonal has at the start
NEARLY_ALL = 0.99  # the same where the start is to be as likely as popularity: directions by chance cost likelihood
LITTLE = 0.1  # the same for choices: one is taken of many that are alike, and only V keeps items apart
N_PARTS = 8  # of the items, whose pairs are counted at the same time
INVERTIBLE = 6000  # up to this many items the inverse of the co-occurrence matrix is at hand
RIDGE = 200.0  # λ of that inverse, and of the regressions that stand for it beyond
NEIGHBOURS = 50  # items in such a regression
ITEMS_PER_BLOCK = 64  # regressions that a thread does at a time
STRENGTH = 0.3  # of the attraction at the start
MOST = 4  # times the number asked for: the most partners of an item that many others choose


@dataclass(frozen=True)
class Partners:
    """The pattern of a skew matrix, as a CSR with both (i, j) and (j, i), and a parameter for each pair."""

    indptr: NDArray[np.int64]
    columns: NDArray[np.int32]
    pair: NDArray[np.int32]  # (nnz,): which parameter belongs to an entry
    signs: Array  # (nnz,): ±1, opposite for (i, j) and (j, i)
    start: Array  # (n_pairs,): log |s_ij| at the start

    def with_partners(self, rows: NDArray[np.int32]) -> Sets:
        """One set: the items, then the partners of each in turn."""
        sizes = np.diff(self.indptr)[rows]
        offsets = pointers(sizes)
        entries = np.repeat(self.indptr[rows] - offsets[:-1], sizes) + np.arange(offsets[-1])
        codes = np.concatenate([rows, self.columns[entries]])
        return Sets(np.array([0, len(codes)], dtype=np.int64), codes)

    def matrix(self, pairs: Array) -> Any:
        """S as a SciPy CSR array, for parameters log |s_ij|."""
        from scipy.sparse import csr_array

        values = self.signs * np.exp(pairs)[self.pair]
        return csr_array((values, self.columns, self.indptr), shape=(len(self.indptr) - 1,) * 2)

    @classmethod
    def of_matrix(cls, matrix: Any, n_items: int) -> Partners:
        """The pattern, signs and values of a skew matrix, in a catalogue that may have grown since."""
        from scipy.sparse import triu

        upper = triu(matrix, k=1).tocoo()
        i, j = upper.row.astype(np.int64), upper.col.astype(np.int64)
        return cls._of(i, j, np.sign(upper.data), np.log(np.abs(upper.data)), n_items)

    @classmethod
    def from_pairs(
        cls, i: NDArray[np.int64], j: NDArray[np.int64], squares: Array, n_items: int, seed: int
    ) -> Partners:
        """Pairs i < j with s_ij² at the start; which of the two entries is positive is left to chance."""
        coin = np.where(stream(seed).random(len(i)) < 0.5, 1.0, -1.0)
        return cls._of(i, j, coin, 0.5 * np.log(squares), n_items)

    @classmethod
    def _of(cls, i: Positions, j: Positions, signs: Array, start: Array, n_items: int) -> Partners:
        row, column = np.concatenate([i, j]), np.concatenate([j, i])
        pair, sign = np.tile(np.arange(len(i)), 2), np.concatenate([signs, -signs])
        order = np.lexsort((column, row))
        indptr = pointers(np.bincount(row, minlength=n_items))
        return cls(indptr, column[order].astype(np.int32), pair[order].astype(np.int32), sign[order], start)


NO_PARTNERS = Partners(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0), np.empty(0))


@dataclass
class State:
    """The parameters under training, with kernels over sets that use `n_jobs` threads and never depend on it.

    Optimisers write to `V`, `log_d` and `pairs`, and then call `changed` or `rows_changed`.

    Attributes
    ----------
    V : ndarray (M, K)
        In float64, or float32 for half of the memory: a row is made float64 when it is looked at.
    log_d : ndarray (M,)
        log d of every item, empty where there is no diagonal.
    epsilon : float
        What is added to the diagonal while annealing; not learned.
    partners : Partners
        The pattern of S.
    pairs : ndarray (n_pairs,)
        log |s_ij| of every pair of partners.
    moved : ndarray of bool (M,)
        The rows of V that changed since someone last cleared it: what a copy of V has to catch up with.
    known_dual : ndarray (K, K) or None
        C = Vᵀ V, where it is known.
    largest : float
        The largest squared norm of the rows that changed last.
    """

    V: Array = kept()
    log_d: Array = kept(default_factory=lambda: np.empty(0))
    partners: Partners = NO_PARTNERS
    n_jobs: int = 1
    epsilon: float = kept(default=0.0, init=False)
    pairs: Array = kept(init=False)
    moved: NDArray[np.bool_] = kept(init=False)
    squared_norms: Array = kept(init=False)
    known_dual: Array | None = kept(default=None, init=False, shape=lambda own: (own.V.shape[1],) * 2)
    _norm_blocks: Array | None = kept(default=None, init=False, shape=lambda own: (-(-len(own.V) // own.block),))
    _dual_wanted: bool = kept(default=False, init=False)
    _parameters: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.V = np.ascontiguousarray(self.V, dtype=np.float32 if self.V.dtype == np.float32 else np.float64)
        self.pairs = self.partners.start.copy()
        self.block = max(64, int(np.sqrt(len(self.V)) / 8))  # items per block of `norm_blocks`
        self.scratch = Scratch()
        self._marked, self._places = np.zeros(len(self.V), dtype=bool), np.zeros(len(self.V), dtype=np.int32)
        self.changed()
        self.moved = np.zeros(len(self.V), dtype=bool)

    # -- The parameters ----------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """M."""
        return len(self.V)

    @property
    def symmetric(self) -> bool:
        """Whether there is no S."""
        return not len(self.partners.columns)

    @property
    def diagonal(self) -> Array:
        """d of every item, empty where there is none."""
        if not self.epsilon:
            return np.exp(self.log_d)
        return np.exp(self.log_d) + self.epsilon if len(self.log_d) else np.full(self.n_items, self.epsilon)

    @property
    def parameters(self) -> Any:
        """The parameters as kernels take them; looked up again after every change."""
        if self._parameters is None:
            where = (self.partners.indptr, self.partners.columns)
            self._parameters = compiled.gradients.Parameters(self.V, self.diagonal, *where, self._skew())
        return self._parameters

    def _skew(self) -> Array:
        """s_ij of every entry of S."""
        pattern, sizes = self.partners, np.empty(len(self.pairs))
        skew = np.empty(len(pattern.pair))

        def write_skew(part: slice) -> None:
            np.multiply(pattern.signs[part], sizes[pattern.pair[part]], out=skew[part])

        over_parts(lambda part: np.exp(self.pairs[part], out=sizes[part]), len(sizes), NUMBERS_PER_BLOCK, self.n_jobs)
        over_parts(write_skew, len(skew), NUMBERS_PER_BLOCK, self.n_jobs)
        return skew

    @property
    def kernel(self) -> Kernel:
        """The kernel of the present parameters."""
        return kernel_of(self.V, self.log_d, self.pairs, self.partners, n_jobs=self.n_jobs)

    @property
    def dual(self) -> Array:
        """C = Vᵀ V (K, K), kept in step with V for as long as every step asks for it."""
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
        """Say that everything has new values."""
        self.known_dual = self._norm_blocks = self._parameters = None
        self.moved = np.ones(len(self.V), dtype=bool)
        self.squared_norms = np.einsum("ik,ik->i", self.V, self.V, dtype=np.float64)
        self.largest = self.squared_norms.max(initial=0.0)

    def refresh(self, epsilon: float | None = None) -> None:
        """Forget what was made from parameters that a checkpoint has replaced, or that change with this epsilon."""
        self.epsilon = self.epsilon if epsilon is None else epsilon
        self._parameters = None

    def at(self, V: Array) -> State:
        """The same with other factors."""
        other = State(V, self.log_d, self.partners, self.n_jobs)
        other.refresh(self.epsilon)
        return other

    def plus_identity(self) -> State:
        """The parameters of I + L, which share their arrays with these; for looking only."""
        other = copy(self)
        other.refresh(self.epsilon + 1.0)
        return other

    def dual_before(self, rows: Codes) -> Array | None:
        """C, if it pays to say how it changes with these rows: if it is asked for at every step, and they are few."""
        return self.known_dual if self._dual_wanted and len(rows) < self.n_items // 2 else None

    def rows_changed(self, rows: Codes, squared_norms: Array, dual: Array | None = None) -> None:
        """Say that these rows of V have new values, their squared norms, and C, if it is known; and log d and pairs."""
        self.known_dual, self._dual_wanted, self._parameters = dual, False, None
        blocks = np.empty(0) if self._norm_blocks is None else self._norm_blocks
        compiled.draws.update_norms(rows, squared_norms, self.squared_norms, blocks, self.block)
        self.largest = squared_norms.max(initial=0.0)
        self.moved[rows] = True

    def moved_rows(self) -> Codes:
        """The rows that `moved` marks."""
        return np.flatnonzero(self.moved).astype(np.int32)

    # -- Work over sets ----------------------------------------------------------------------------

    def over_sets(
        self, kernel: Callable[..., object], sets: Sets, before: tuple[Any, ...], after: tuple[Any, ...]
    ) -> None:
        """Run a Numba kernel over blocks of sets: kernel(parameters, *before, indptr, indices, first, last, *after).

        What it writes for a set must not depend on the others: one thread takes all of them as one block.
        """
        parameters, size = self.parameters, SETS_PER_BLOCK if self.n_jobs > 1 else max(sets.count, 1)

        def work(part: slice) -> None:
            kernel(parameters, *before, sets.indptr, sets.indices, part.start, part.stop, *after)

        over_parts(work, sets.count, size, self.n_jobs, first_alone=not _loaded(kernel, self.symmetric))

    def at_once(self, kernels: Sequence[Any], *tasks: Callable[[], Any]) -> list[Any]:
        """What the tasks give, each on one thread; in turn as long as one of these kernels is still to be compiled."""
        n_jobs = self.n_jobs if all(map(_loaded, kernels)) else 1
        return results_of_blocks(lambda task: tasks[task](), len(tasks), n_jobs)

    @property
    def _no_room(self) -> tuple[NDArray[np.int64] | None, Array, Array]:
        """Links, rows and numbers of a gradient that is not asked for."""
        links = None if self.symmetric else np.zeros(1, dtype=np.int64)
        return links, np.empty((0, self.V.shape[1])), np.empty(0)

    def number_rows(self, sets: Sets) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The distinct items of the sets, ascending, and for each entry the position of its item among them.

        In this order their rows come from memory a tenth faster than in that of the sets.
        """
        self._marked[sets.indices] = True
        rows, slots = np.flatnonzero(self._marked).astype(np.int32), np.empty(len(sets.indices), dtype=np.int32)
        compiled.gradients.number_rows(rows, sets.indices, self._marked, self._places, slots)
        return rows, slots

    def terms(self, rows: NDArray[np.int32]) -> Any:
        """What the conditional likelihood needs of these items: rows of V C and S V, and tr L."""
        K = self.V.shape[1]
        VC = times(self.V, self.dual, self.n_jobs, rows, out=self.scratch("VC", len(rows), K))
        VS = self.scratch("VS", 0 if self.symmetric else len(rows), K)
        if not self.symmetric:
            parameters, kernel = self.parameters, compiled.gradients.partner_sums

            def work(part: slice) -> None:
                kernel(parameters, rows[part], VS[part])

            over_parts(work, len(rows), ROWS_PER_BLOCK, self.n_jobs, first_alone=not _loaded(kernel))
        return compiled.gradients.Terms(VC, VS, float(np.trace(self.dual) + self.diagonal.sum()))

    def log_det(self, sets: Sets) -> Array:
        """log det L_A of every set."""
        out = np.empty(sets.count)
        kernel, (links, rows, numbers) = compiled.gradients.log_det_gradients, self._no_room
        self.over_sets(kernel, sets, (links,), (out, rows, numbers, numbers))
        return out

    def log_choice(self, chosen: Sets, offered: Sets) -> Array:
        """log P(chosen | offered) = log det L_chosen − log det(I + L_offered) for every pair of sets."""
        return self.log_det(chosen) - self.plus_identity().log_det(offered)

    def conditional_log_likelihood(self, sets: Sets) -> Array:
        """log P(i | A∖i) for every entry of the sets; NaN where a set is singular."""
        rows, slots = self.number_rows(sets)
        out = np.empty(len(sets.indices))
        kernel, (links, none, numbers) = compiled.gradients.conditional_gradients, self._no_room
        after = (out, numbers, none, none, none, numbers, numbers, numbers)
        self.over_sets(kernel, sets, (self.terms(rows), slots, links), after)
        return out


def over_parts(work: Callable[[slice], Any], n: int, size: int, n_jobs: int, *, first_alone: bool = False) -> None:
    """Call `work(part)` for every part of so much `size` of a range of n, as `run_blocks`."""
    parts = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    run_blocks(lambda block: work(parts[block]), len(parts), n_jobs, first_alone=first_alone)


def kernel_of(V: Array, log_d: Array, pairs: Array, partners: Partners, *, n_jobs: int = 1) -> Kernel:
    """The kernel of learned parameters."""
    skew = partners.matrix(pairs) if len(partners.columns) else None
    return Kernel(V, skew=skew, diagonal=np.exp(log_d) if len(log_d) else None, n_jobs=n_jobs)


def _loaded(kernel: Any, symmetric: bool | None = None) -> bool:
    """Whether a kernel has been compiled, or read from the cache, in this process; one over sets in this form."""
    forms = getattr(kernel, "signatures", None)  # none of a plain function
    return forms is None or any(symmetric in (None, "none" in map(str, form)) for form in forms)


# -- Where training starts --------------------------------------------------------------------------


def first_state(problem: Problem, params: Params) -> State:
    """Where training starts: at what is known, or at the popularity of items and what is bought together."""
    rng, known = stream(problem.seed, START), problem.known
    if known is not None:
        if not known.kernel.plain:
            raise ParameterError("a kernel with a gain, as from condition(), cannot be trained on")
        V, log_d = enlarged_start(known.kernel, problem.counts, problem.n_baskets, rng)
        partners = Partners.of_matrix(known.kernel.skew.matrix(), len(V)) if params.n_skew else NO_PARTNERS
        return State(as_kept(V, params), log_d, partners, params.n_jobs)
    counts, on_diagonal = problem.counts, ON_DIAGONAL
    if params.by_choice and problem.data.offered is not None:
        on_diagonal = LITTLE if params.n_components else ON_DIAGONAL
        counts = problem.n_baskets * rates(problem.data, len(counts))
    V = start_factors(params.init, counts, problem.n_baskets, params.n_components, rng)
    log_d = np.empty(0)
    if params.diagonal:
        log_d, V = split_off_diagonal(V, counts, problem.n_baskets, on_diagonal)
    return State(as_kept(V, params), log_d, first_partners(problem, params), params.n_jobs)


def as_kept(V: Array, params: Params) -> Array:
    """V as it is kept while it is learned: in float64 where a few parameters are polished to the last digit."""
    kept: Array = V if V.size <= MOST_PARAMETERS else V.astype(params.dtype, copy=False)
    return kept


def rates(data: TrainingData, n_items: int) -> Array:
    """How often each item is taken when it is offered; as often as all of them, as far as an item has no history."""
    sets, offered = data.positives, data.offered or data.positives
    liked = np.maximum(data.weights, 0.0)
    taken, shown = (
        np.bincount(part.indices, weights=np.repeat(liked, part.sizes), minlength=n_items) for part in (sets, offered)
    )
    mean = taken.sum() / max(shown.sum(), 1e-300)
    return np.asarray((taken + HISTORY * mean) / (shown + HISTORY), dtype=np.float64)


def first_partners(problem: Problem, params: Params) -> Partners:
    """The pattern of S, from the liked baskets."""
    if not params.n_skew:
        return NO_PARTNERS
    data, together, n_sets = problem.data, problem.together, problem.n_baskets
    if together is None:
        liked = data.weights[data.weights > 0]
        n_sets = float(liked.sum())
        together = co_occurrences(data.liked, liked, len(problem.counts), params.n_jobs)
    share = popularity(problem.counts, problem.n_baskets)
    seed = root_seed(stream(problem.seed, PARTNERS))
    return find_partners(together, n_sets, share / (1 - share), params.n_skew, seed, n_jobs=params.n_jobs)


def popularity(counts: Counts, n_baskets: float) -> Array:
    """p̂_i, the share of baskets with item i, kept strictly between 0 and 1.

    An item that never occurs counts as half a basket, and one that always does as all but half.
    """
    n = max(n_baskets, 1)
    share: Array = np.clip(counts.astype(np.float64), 0.5, max(n - 0.5, 0.5)) / n
    return share


def start_factors(init: str, counts: Counts, n_baskets: float, n_components: int, rng: np.random.Generator) -> Array:
    """The first V (M, K).

    Parameters
    ----------
    init : {"popularity", "uniform"}
        "popularity": row i has norm sqrt(p̂_i / (1 − p̂_i)), which starts at the popularity ranking, and a
        random direction. "uniform": entries from U(1, 2), as LowRankDPP.jl and the paper.
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
    """log d and V with d_i + ‖v_i‖² the odds of item i: most of it on the diagonal, the directions those of V."""
    p = popularity(counts, n_baskets)
    odds = p / (1 - p)
    lengths = np.sqrt(np.einsum("ik,ik->i", V, V))
    scale = np.divide(np.sqrt((1 - on_diagonal) * odds), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return np.log(on_diagonal * odds), V * scale[:, None]


def enlarged_start(kernel: Kernel, counts: Counts, n_baskets: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """V and log d of a kernel with rows for new items: as heavy as their popularity and the kernel's scale ask."""
    old = kernel.factors.astype(np.float64)
    fresh = start_factors("popularity", counts, n_baskets, old.shape[1], rng)
    share = popularity(counts, n_baskets)
    odds, weights = share / (1 - share), kernel.squared_norms
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


# -- Which items attract which ---------------------------------------------------------------------


def co_occurrences(sets: Sets, weights: Array, n_items: int, n_jobs: int = 1) -> Any:
    """Xᵀ X, in how many sets any two items are together (sparse, M × M, sorted); a set counts as it weighs."""
    from scipy import sparse

    owner = np.repeat(np.arange(sets.count), sets.sizes)
    short = np.int32 if len(sets.indices) < 2**31 else np.int64  # else SciPy takes 64 bits for all, half as fast
    places = sets.indices.astype(short, copy=False), sets.indptr.astype(short)
    X = sparse.csr_array((np.sqrt(weights)[owner], *places), shape=(sets.count, n_items))
    by_item = X.T.tocsr()
    done = np.cumsum(np.bincount(sets.indices, sets.sizes[owner], n_items))  # the work up to every item
    shares = np.arange(1, N_PARTS) / N_PARTS * done[-1] if n_items else []
    edges = [0, *np.searchsorted(done, shares).tolist(), n_items]

    def work(part: int) -> Any:
        product = by_item[edges[part] : edges[part + 1]] @ X
        product.sort_indices()
        return product

    parts = results_of_blocks(work, len(edges) - 1, n_jobs)
    ends = pointers(np.array([part.nnz for part in parts]))
    indptr = pointers(np.concatenate([np.diff(part.indptr) for part in parts]))
    columns, values = np.empty(ends[-1], dtype=np.int32), np.empty(ends[-1])

    def join(part: int) -> None:  # in threads: the pages of new memory take as long as what is copied to them
        own = slice(ends[part], ends[part + 1])
        columns[own], values[own], parts[part] = parts[part].indices, parts[part].data, None

    run_blocks(join, len(parts), n_jobs)
    return sparse.csr_array((values, columns, indptr), shape=(n_items, n_items))


def find_partners(
    together: Any, n_sets: float, odds: Array, n_partners: int, seed: int, *, n_jobs: int = 1
) -> Partners:
    """For each item those that it occurs with more often than chance, the `n_partners` strongest, and how strong.

    The attraction of a pair is P̂_ij max(log P̂_ij/(p̂_i p̂_j), 0) and max(−Q_ij, 0)/(n Q_ii Q_jj) with
    Q = (Xᵀ X + λI)⁻¹: what i says about j beyond all others, or in catalogues of more than INVERTIBLE items beyond its
    neighbours. With s_ij² equal to it, the next-item score of j given a small basket A is about
    d_j + Σ_a s_aj²/d_a, d = p̂/(1 − p̂).
    """
    from scipy import sparse

    M, n = len(odds), max(n_sets, 1.0)
    counts = together.diagonal()
    upper = sparse.triu(together, k=1).tocoo()
    i, j, both = upper.row.astype(np.int64), upper.col.astype(np.int64), upper.data
    chance = np.where(both > 1.0, counts[i] * counts[j], both * n)  # others are not kept, and may weigh next to nothing
    squares = STRENGTH * 0.3 * both / n * np.maximum(np.log(both * n / chance), 0.0)
    if not len(i):
        return Partners.from_pairs(i, j, squares, M, seed)
    if M <= INVERTIBLE:
        squares += STRENGTH * beyond_others(together, i, j, n)
    else:
        squares += STRENGTH * beyond_neighbours(upper, counts, i, j, n, n_jobs)
    strong = np.flatnonzero((squares > 0) & (both > 1.0))
    i, j, squares = i[strong], j[strong], squares[strong]
    kept = strongest(i, j, squares / np.sqrt(odds[i] * odds[j]), M, n_partners)
    return Partners.from_pairs(i[kept], j[kept], squares[kept], M, seed)


def beyond_others(together: Any, i: Positions, j: Positions, n: float) -> Array:
    """max(−Q_ij, 0)/(n Q_ii Q_jj) for the pairs, Q = (Xᵀ X + λI)⁻¹."""
    dense = together.toarray()
    dense[np.diag_indices_from(dense)] += RIDGE
    Q = np.linalg.inv(dense)
    diagonal = np.diagonal(Q)
    strength: Array = np.maximum(-Q[i, j], 0.0) / (n * diagonal[i] * diagonal[j])
    return strength


def beyond_neighbours(upper: Any, counts: Array, i: Positions, j: Positions, n: float, n_jobs: int) -> Array:
    """The same by the regression B_:j of every item j on its nearest items: −Q_ij/(Q_ii Q_jj) = B_ij r_i.

    r_i = 1/Q_ii is what λ and the others leave of n_i. In either direction it is the same number if all items are
    neighbours; else the mean is taken of those directions that there are. `upper` is the triangle of Xᵀ X.
    """
    others = (upper + upper.T).tocsr()
    others.sort_indices()
    rows = (others.indptr.astype(np.int64), others.indices.astype(np.int32), others.data)
    B = regress_on_neighbours(*rows, counts, np.full(len(counts), RIDGE), NEIGHBOURS, n_jobs).tocsr()
    rest = counts + RIDGE - B.multiply(others).sum(axis=0)
    there, back = np.asarray(B[i, j]).ravel(), np.asarray(B[j, i]).ravel()
    directions = np.maximum((there != 0).astype(np.float64) + (back != 0), 1.0)
    strength: Array = np.maximum(there * rest[i] + back * rest[j], 0.0) / (n * directions)
    return strength


def regress_on_neighbours(
    indptr: NDArray[np.int64], columns: NDArray[np.int32], together: Array, counts: Array, diagonal: Array,
    n_neighbours: int, n_jobs: int, items: range | None = None,
) -> Any:  # fmt: skip
    """B with B_Nj = (C_NN + diag(d_N))⁻¹ C_Nj, N the items nearest to j by cosine: a sparse matrix by columns.

    The rows are those of C = Xᵀ X without its diagonal, which is `counts`; d is `diagonal`. With `items` only the
    columns of those.
    """
    from scipy.sparse import csc_array

    M, n = len(counts), int(min(n_neighbours, np.diff(indptr).max(initial=0)))
    asked = range(M) if items is None else items
    size = len(asked)
    codes, weights, sizes = np.empty((size, n), dtype=np.int32), np.empty((size, n)), np.zeros(size, dtype=np.int64)

    def work(part: slice) -> None:
        compiled.neighbours.ridge_columns(
            indptr, columns, together, counts, diagonal, asked.start + part.start, asked.start + part.stop,
            codes[part], weights[part], sizes[part],
        )  # fmt: skip

    over_parts(work, size, ITEMS_PER_BLOCK, n_jobs)
    there = np.arange(n) < sizes[:, None]
    return csc_array((weights[there], codes[there], pointers(sizes)), shape=(M, size))


def strongest(i: Positions, j: Positions, value: Array, n_items: int, n: int) -> Positions:
    """The pairs among the n strongest of one of their items and the MOST × n strongest of the other, in order.

    Without the second bound, what sells with everything would have everything for a partner.
    """
    ends, which = np.concatenate([i, j]), np.tile(np.arange(len(i)), 2)
    order = np.lexsort((-value[which], ends))
    first = pointers(np.bincount(ends, minlength=n_items))
    rank = np.empty(len(ends), dtype=np.int64)
    rank[order] = np.arange(len(ends)) - first[ends[order]]
    of_i, of_j = rank[: len(i)], rank[len(i) :]
    return np.flatnonzero((np.minimum(of_i, of_j) < n) & (np.maximum(of_i, of_j) < MOST * n))
