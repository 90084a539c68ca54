"""Training sets per second against plain PyTorch autograd doing the same step: dynamic CE, Belgian size.

PyTorch is no dependency of ours; it lives in an environment of its own:

    python -m venv TORCH && TORCH/bin/pip install torch==2.13.0 numpy
    python benchmarks/pytorch.py TORCH/bin/python

Both sides take the same batches of positives and negatives (drawn by us beforehand), one thread each, float64,
and make whole steps: log-determinants, gradient, Adam. PyTorch pads every basket of a batch to the largest with
an identity block; a second version first sorts the sets into eight groups by size, which wastes less.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TORCH_SIDE = """
import sys, time
import numpy as np, torch

torch.set_num_threads(1)
data = np.load(sys.argv[1])
start, indptr, indices, y, n_batches = data["V"], data["indptr"], data["indices"], data["y"], int(data["n_batches"])
batch_of, groups = data["batch_of"], int(sys.argv[2])
V = torch.nn.Parameter(torch.tensor(start))
adam = torch.optim.Adam([V], lr=1e-3)

def padded(sets):
    sizes = indptr[sets + 1] - indptr[sets]
    codes = np.zeros((len(sets), sizes.max()), dtype=np.int64)
    for row, s in enumerate(sets):
        codes[row, : sizes[row]] = indices[indptr[s] : indptr[s + 1]]
    here = np.arange(sizes.max()) < sizes[:, None]
    return torch.tensor(codes), torch.tensor(here), torch.tensor(y[sets])

batches = []
for number in range(n_batches):
    sets = np.flatnonzero(batch_of == number)
    order = sets[np.argsort(indptr[sets + 1] - indptr[sets], kind="stable")] if groups > 1 else sets
    batches.append([padded(part) for part in np.array_split(order, groups)])

def step(parts):
    adam.zero_grad()
    loss = 0.0
    for codes, here, weights in parts:
        rows = V[codes] * here[..., None]
        L = rows @ rows.mT + torch.diag_embed((~here).double())
        loss = loss - (weights * torch.linalg.slogdet(L).logabsdet).sum()
    loss.backward()
    adam.step()

step(batches[0])
started = time.perf_counter()
for parts in batches:
    step(parts)
print(time.perf_counter() - started)
"""


def our_seconds(path: str) -> float:
    """The time of the same steps with our objective and optimiser."""
    from contradpp._threads import blas_threads
    from contradpp.data.sets import Sets, take_sets
    from contradpp.learn.negatives import Negatives
    from contradpp.learn.objectives import Batch, Contrastive
    from contradpp.learn.optimizers import Adam
    from contradpp.learn.state import State

    data = np.load(path)
    sets = Sets(data["indptr"], data["indices"])
    batches = []
    for number in range(int(data["n_batches"])):
        mine = np.flatnonzero(data["batch_of"] == number)
        liked, other = mine[data["y"][mine] > 0], mine[data["y"][mine] < 0]
        negatives = Negatives(take_sets(sets, other), -data["y"][other], len(other) / len(liked))
        batches.append(Batch(take_sets(sets, liked), data["y"][liked], negatives))
    state = State(data["V"].copy())
    objective, optimizer = Contrastive(1.0), Adam(np.zeros(len(state.V)), state.V.shape[1])
    with blas_threads(1):
        optimizer.step(state, objective.gradient(state, batches[0]), 1.0)
        started = time.perf_counter()
        for batch in batches:
            optimizer.step(state, objective.gradient(state, batch), 1.0)
        return time.perf_counter() - started


def write_problem(path: Path, n_batches: int, K: int = 76) -> int:
    """Batches of 1,000 positives and 500 dynamic negatives; returns the number of sets."""
    from contradpp._random import stream
    from contradpp.data.sets import Sets, concatenate, take_sets
    from contradpp.learn.negatives import Dynamic
    from contradpp.learn.state import State, popularity, start_factors
    from experiments.speed.bench import shop

    baskets = shop("belgian")
    baskets = baskets.subset(baskets.sizes <= K)
    sets = Sets(baskets.indptr, baskets.indices)
    V = start_factors("popularity", baskets.item_counts, baskets.n_baskets, K, stream(0))
    state, source = State(V), Dynamic(popularity(baskets.item_counts, baskets.n_baskets))
    everything, y, batch_of = Sets(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)), [], []
    order = stream(1).permutation(sets.count)
    for number in range(n_batches):
        positives = take_sets(sets, order[1000 * number : 1000 * (number + 1)])
        negatives = source.draw(state, positives, 500, stream(2, number), np.ones(positives.count))
        everything = concatenate(everything, concatenate(positives, negatives))
        y += [1 / 1000] * 1000 + [-1 / 500] * 500
        batch_of += [number] * 1500
    np.savez(
        path, V=V, indptr=everything.indptr, indices=everything.indices, y=y, batch_of=batch_of, n_batches=n_batches
    )
    return everything.count


def main() -> None:
    """Measure both sides in turn, three times, and print the best of each."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python benchmarks/pytorch.py PYTHON_WITH_TORCH")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        count = write_problem(path, n_batches=4)
        times: dict[str, list[float]] = {"contradpp": [], "PyTorch": [], "PyTorch, 8 groups by size": []}
        for _ in range(3):
            times["contradpp"].append(our_seconds(str(path)))
            for name, groups in (("PyTorch", "1"), ("PyTorch, 8 groups by size", "8")):
                command = [sys.argv[1], "-c", TORCH_SIDE, str(path), groups]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                times[name].append(float(done.stdout))
    ours = min(times["contradpp"])
    for name, seconds in times.items():
        print(f"{name:<28}{count / min(seconds):>12,.0f} sets a second{min(seconds) / ours:>10.1f} times our time")


if __name__ == "__main__":
    main()
