"""Gradients of set likelihoods for PyTorch, beside plain PyTorch that groups sets by size.

    OPENBLAS_NUM_THREADS=1 python -m experiments.speed.torch_sets

Both compute one new batch forward and backward, to V (M, K), and are checked to agree. Times are
processor seconds on one thread, the least of several in turns; only their ratio is comparable
between machines.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import numpy as np
import torch

import contradpp.torch as cdt
from contradpp.data.sets import Sets, pointers, take_sets

Loss = Callable[[torch.Tensor, Sets], torch.Tensor]


def random_sets(n: int, n_items: int, mean: float, seed: int) -> Sets:
    """Draw sets of 2 items and more, with Poisson sizes and popular items."""
    rng = np.random.default_rng(seed)
    sizes = np.maximum(2, rng.poisson(mean, n))
    weights = 1.0 / np.arange(1, n_items + 1) ** 0.8
    rows = [rng.choice(n_items, size, replace=False, p=weights / weights.sum()) for size in sizes]
    return Sets(pointers(sizes), np.concatenate(rows).astype(np.int32))


def grouped(sets: Sets) -> list[torch.Tensor]:
    """Return the sets of every size as a tensor (n, size)."""
    groups = []
    for size in np.unique(sets.sizes).tolist():
        which = np.flatnonzero(sets.sizes == size)
        places = sets.indptr[which][:, None] + np.arange(size)
        groups.append(torch.from_numpy(sets.indices[places].astype(np.int64)))
    return groups


def plain_log_prob(V: torch.Tensor, sets: Sets) -> torch.Tensor:
    """Return Σ log P(A) by batched Cholesky factors."""
    total = V.new_zeros(())
    groups = grouped(sets)
    for codes in groups:
        X = V[codes]
        factors = torch.linalg.cholesky(X @ X.transpose(1, 2))
        total = total + 2 * factors.diagonal(dim1=1, dim2=2).log().sum()
    identity = torch.eye(V.shape[1], dtype=V.dtype)
    return total - sets.count * torch.logdet(identity + V.T @ V)


def plain_conditional(V: torch.Tensor, sets: Sets) -> torch.Tensor:
    """Return Σ_A mean_i log P(i | A∖i) by batched inverses, in closed form."""
    total = V.new_zeros(())
    C = V.T @ V
    for codes in grouped(sets):
        X = V[codes]
        W = torch.linalg.inv(X @ X.transpose(1, 2))
        WT = W @ (X @ C @ X.transpose(1, 2))
        own = W.diagonal(dim1=1, dim2=2)
        squares = (WT @ W).diagonal(dim1=1, dim2=2)
        rest = C.trace() - WT.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
        total = total - (own * (rest + squares / own)).log().mean(1).sum()
    return total


def plain_contrast(V: torch.Tensor, sets: Sets) -> torch.Tensor:
    """Return mean log det L_A over the second half of the sets less that over the first."""
    half = sets.count // 2
    parts = [take_sets(sets, np.arange(half)), take_sets(sets, np.arange(half, sets.count))]
    logs = [V.new_zeros(()), V.new_zeros(())]
    for number, part in enumerate(parts):
        for codes in grouped(part):
            X = V[codes]
            factors = torch.linalg.cholesky(X @ X.transpose(1, 2))
            logs[number] = logs[number] + 2 * factors.diagonal(dim1=1, dim2=2).log().sum()
    return (logs[1] - logs[0]) / half


def contrast(V: torch.Tensor, sets: Sets) -> torch.Tensor:
    """Return the same by `contrastive_loss`."""
    half = sets.count // 2
    positive = take_sets(sets, np.arange(half))
    return cdt.contrastive_loss(V, positive, take_sets(sets, np.arange(half, sets.count)))


KINDS: dict[str, tuple[Loss, Loss]] = {
    "contrast": (contrast, plain_contrast),
    "joint": (lambda V, sets: cdt.log_prob(V, sets).sum(), plain_log_prob),
    "conditional": (lambda V, sets: cdt.conditional_log_prob(V, sets).sum(), plain_conditional),
}


def gradient(loss: Loss, V: torch.Tensor, sets: Sets) -> torch.Tensor:
    """Return the gradient of the loss by V."""
    (found,) = torch.autograd.grad(loss(V, sets), V)
    return found


def seconds(loss: Loss, V: torch.Tensor, sets: Sets) -> float:
    """Return the time of one gradient."""
    start = time.process_time()
    gradient(loss, V, sets)
    return time.process_time() - start


@click.command(help=__doc__)
@click.option("--repeats", default=15)
@click.option("--batch", default=1000, help="Sets in a batch.")
def torch_sets(repeats: int, batch: int) -> None:
    """Print a row for every likelihood and shape."""
    torch.set_num_threads(1)
    click.echo(f"batches of {batch} sets, sets a second of one processor")
    click.echo("likelihood        M    K  size    type         ours       plain  ratio  difference")
    for M, K, mean in (200, 32, 4), (1_000, 32, 6), (10_000, 64, 10), (50_000, 64, 10), (10_000, 128, 25):
        sets = random_sets(batch, M, mean, seed=0)
        for dtype in (torch.float32, torch.float64):
            V = torch.randn(M, K, generator=torch.Generator().manual_seed(0), dtype=dtype)
            V = (V / K**0.5).requires_grad_()
            for name, losses in KINDS.items():
                ours, plain = (gradient(loss, V, sets) for loss in losses)
                off = float((ours - plain).abs().max() / plain.abs().max())
                times = [[seconds(loss, V, sets) for loss in losses] for _ in range(repeats)]
                a, b = np.min(times, axis=0).tolist()
                kind = str(dtype).removeprefix("torch.")
                rates = f"{batch / a:12,.0f}{batch / b:12,.0f}{b / a:7.1f}{off:12.0e}"
                click.echo(f"{name:11}{M:8}{K:5}{mean:6} {kind} {rates}")


if __name__ == "__main__":
    torch_sets()
