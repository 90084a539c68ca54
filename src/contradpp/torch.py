"""DPP likelihoods for PyTorch: autograd functions over the compiled gradients (extra `torch`).

V, the diagonal and the skew part may be the output of any network. Gradients are exact. They can be
taken once: there is no second derivative. As many threads work as `torch.get_num_threads` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contradpp._random import RandomState, root_seed, stream
from contradpp._types import Array
from contradpp.data.sets import concatenate, take_sets
from contradpp.dpp.kernel import Kernel
from contradpp.dpp.sampling import Samplers
from contradpp.errors import MissingExtraError, ParameterError
from contradpp.experts.queries import check_count
from contradpp.learn.likelihood import Likelihood, row_sets, state_of
from contradpp.learn.negatives import DynamicSource

try:
    import torch
    from torch import Tensor
    from torch.utils.data import Sampler
except ModuleNotFoundError as error:
    message = "contradpp.torch needs the extra: pip install 'contradpp[torch]'"
    raise MissingExtraError(message) from error

__all__ = [
    "DiverseBatchSampler",
    "choice_log_prob",
    "conditional_log_prob",
    "contrastive_loss",
    "log_prob",
]

Pairs = tuple[Any, Any, Tensor]  # i, j and s, with S_ij = s and S_ji = −s


def log_prob(
    V: Tensor, baskets: Any, diagonal: Tensor | None = None, skew: Pairs | None = None
) -> Tensor:
    """Return log P(A) = log det L_A − log det(I + L) of every basket, L = D + V Vᵀ + S.

    A set of probability zero has −inf, and no gradient.

    Parameters
    ----------
    V : tensor (M, K)
        The factors, a row per item, on the CPU.
    baskets : Baskets, or a list of lists of int
        Sets of row numbers of V; `Baskets` have as many items as V has rows.
    diagonal : tensor (M,), optional
        d ≥ 0; zero if left out.
    skew : (i, j, s), optional
        The pairs of S, each once: S_ij = s and S_ji = −s, with a tensor s. Then a matrix (M, M) is
        inverted, for at most 2,000 items.

    Examples
    --------
    >>> import torch
    >>> import contradpp.torch as cdt
    >>> V = torch.eye(2, requires_grad=True)
    >>> cdt.log_prob(V, [[0], [0, 1], []]).mean().backward()
    >>> [round(number, 3) for number in V.grad.diagonal().tolist()]
    [0.333, -0.333]
    """
    return _apply("joint", baskets, V, diagonal, skew)


def conditional_log_prob(
    V: Tensor, baskets: Any, diagonal: Tensor | None = None, skew: Pairs | None = None
) -> Tensor:
    """Return the mean over i ∈ A of log P(next = i | A∖i) of every basket, in closed form.

    It is the objective "exact" of the models: the expectation of `contrastive_loss` with dynamic
    negatives. The arguments are those of `log_prob`, with any number of items. An empty basket has
    0.
    """
    return _apply("conditional", baskets, V, diagonal, skew)


def choice_log_prob(
    V: Tensor, chosen: Any, offered: Any, diagonal: Tensor | None = None, skew: Pairs | None = None
) -> Tensor:
    """Return log P(Y = chosen | Y ⊆ offered) = log det L_chosen − log det(I + L_offered).

    `offered` are as many sets as `chosen`: what each was taken from. The other arguments are those
    of `log_prob`, with any number of items.
    """
    return _apply("choice", chosen, V, diagonal, skew, offered=offered)


def contrastive_loss(
    V: Tensor,
    baskets: Any,
    negatives: Any = None,
    diagonal: Tensor | None = None,
    skew: Pairs | None = None,
    *,
    contrast: float = 1.0,
    random_state: RandomState = None,
) -> Tensor:
    """Return contrast · mean log P(negatives) − mean log P(baskets): −φ_CE of the paper.

    Sets of probability zero are left out of the means. With a contrast of 1 the normalizer cancels.

    Parameters
    ----------
    V, baskets, diagonal, skew
        As in `log_prob`.
    negatives : Baskets, or a list of lists of int, optional
        Sets that should be unlikely. If left out, each basket has a near miss that is drawn from
        the present kernel, the paper's dynamic negatives: an item i is replaced by j with
        probability ∝ P(A∖i ∪ j).
    contrast : float
        The weight of the negatives.
    random_state : int, Generator or None
        For dynamic negatives. A generator goes on from step to step; an integer draws the same.
    """
    positive = row_sets(baskets, len(V))
    is_dynamic = negatives is None
    if is_dynamic:
        d = None if diagonal is None else _array(diagonal)
        pairs = None if skew is None else (_array(skew[0]), _array(skew[1]), _array(skew[2]))
        state = state_of(_array(V), d, pairs, n_jobs=torch.get_num_threads())
        source = DynamicSource(np.ones(len(V)))
        parents = take_sets(positive, np.flatnonzero(positive.sizes > 0))
        rng = stream(root_seed(random_state))
        negatives = source.draw(state, parents, parents.count, rng) if parents.count else parents
    negative = row_sets(negatives, len(V), "negatives")
    if not is_dynamic and not negative.count:
        raise ParameterError(
            "negatives has no sets: leave it out for dynamic negatives, or use log_prob"
        )
    kind = "log_det" if contrast == 1.0 and negative.count else "joint"
    values = _apply(kind, concatenate(positive, negative), V, diagonal, skew)
    loss = values.new_zeros(())
    for weight, part in (-1.0, values[: positive.count]), (contrast, values[positive.count :]):
        possible = part[torch.isfinite(part)]
        if len(possible):
            loss = loss + weight * possible.mean()
    return loss


class DiverseBatchSampler(Sampler[list[int]]):
    """A batch sampler whose mini-batches are exact samples of a k-DPP over the rows of X.

    Rows that are alike seldom meet in a batch, so that its gradient varies less (Zhang, Kjellström
    and Mandt 2017). Batches are independent, and an epoch has N / batch_size of them: it need not
    see every row once.

    Parameters
    ----------
    X : array (N, D)
        Features of the training examples, such as embeddings. A batch can have at most as many
        rows as X has rank.
    batch_size : int
    random_state : int, Generator or None
        Every epoch draws anew.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> import contradpp.torch as cdt
    >>> X = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    >>> sampler = cdt.DiverseBatchSampler(X, batch_size=4, random_state=0)
    >>> loader = DataLoader(TensorDataset(X), batch_sampler=sampler)
    >>> len(loader), [len(batch) for (batch,) in loader][:3]
    (25, [4, 4, 4])
    """

    def __init__(
        self, X: Tensor | ArrayLike, batch_size: int, *, random_state: RandomState = None
    ) -> None:
        check_count(batch_size, "batch_size")
        self.batch_size = int(batch_size)
        self._samplers = Samplers(Kernel(_array(X), n_jobs=torch.get_num_threads()))
        self._seed = root_seed(random_state)
        self._epoch = 0

    def __len__(self) -> int:
        return self._samplers.kernel.n_items // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        seed = root_seed(stream(self._seed, self._epoch))
        self._epoch += 1
        drawn = self._samplers.sample(len(self), seed=seed, size=self.batch_size)
        yield from drawn.indices.reshape(-1, self.batch_size).tolist()


class _LogLikelihood(torch.autograd.Function):
    """Log-likelihoods of sets as a function of V, d and s; `query` has the rest."""

    @staticmethod
    def forward(
        ctx: Any, query: dict[str, Any], V: Tensor, diagonal: Tensor | None, s: Tensor | None
    ) -> Tensor:
        d = None if diagonal is None else _array(diagonal)
        i, j = query.pop("pairs")
        skew = None if s is None else (_array(i), _array(j), _array(s))
        wanted = any(ctx.needs_input_grad)
        found = Likelihood(_array(V), diagonal=d, skew=skew, wanted=wanted, **query)
        ctx.likelihood = found
        ctx.save_for_backward(V, diagonal, s)
        return torch.from_numpy(found.values).to(V.dtype)

    @staticmethod
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise ParameterError("there is no second derivative: leave out create_graph=True")
        parameters = ctx.saved_tensors  # raises if one was changed in place
        gradients = ctx.likelihood.gradient(_array(weights).astype(np.float64))
        return None, *(
            None if gradient is None else torch.from_numpy(gradient).to(of.dtype).reshape(of.shape)
            for of, gradient in zip(parameters, gradients, strict=True)
        )


def _apply(
    kind: str, baskets: Any, V: Tensor, diagonal: Any, skew: Any, *, offered: Any = None
) -> Tensor:
    """Check the tensors, and apply the autograd function."""
    i, j, s = (None, None, None) if skew is None else skew
    for name, tensor in {"V": V, "diagonal": diagonal, "the s of skew": s}.items():
        if tensor is None and name != "V":
            continue
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ParameterError(f"{name} must be a tensor of real numbers (floats), got {got}")
        if tensor.device.type != "cpu":
            raise ParameterError(f"{name} is on {tensor.device}: pass a copy on the CPU, .cpu()")
    query = {"baskets": baskets, "kind": kind, "offered": offered, "pairs": (i, j)}
    query["n_jobs"] = torch.get_num_threads()
    values: Tensor = _LogLikelihood.apply(query, V, diagonal, s)
    return values


def _array(values: Any) -> Array:
    """Return a tensor as an array, half precision as float32; or anything else as an array."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach()
    half = values.dtype in (torch.float16, torch.bfloat16)
    array: Array = (values.float() if half else values).numpy()
    return array
