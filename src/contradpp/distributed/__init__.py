"""Training on several machines: a worker has some of the baskets and all parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RayEngine:
    """A Ray cluster to train on, for the argument `engine` of `fit`.

    Each basket is in one Parquet file, on a file system that fsspec knows and all machines reach.

    Parameters
    ----------
    workers : int
        Processes to train with.
    address : str, optional
        Address of the cluster; one on this machine if omitted.
    timeout : float
        Seconds after which a silent worker counts as lost.
    restarts : int
        How many times lost workers are replaced.
    columns : mapping, optional
        The columns of the files by role: "basket", "item", "quantity", "name".

    Examples
    --------
    >>> import contradpp as cd
    >>> cd.RayEngine(workers=8, timeout=60.0).name
    'ray'
    """

    workers: int = 2
    address: str | None = None
    timeout: float = 120.0
    restarts: int = 3
    columns: Mapping[str, str | None] | None = None
    name = "ray"
