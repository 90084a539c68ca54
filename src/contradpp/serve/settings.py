"""What a server is told: which model, how much a request may ask for, and where feedback goes."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Self

from contradpp.errors import ParameterError

ENVIRONMENT = "CONTRADPP_SERVE"  # how the parent tells its workers; the token travels apart from it
TOKEN = "CONTRADPP_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one request may ask for.

    Attributes
    ----------
    body_bytes : int
        Length of a request's body, however it is sent.
    basket_items : int
        Items of one basket.
    batch : int
        Baskets of one request.
    suggestions : int
        n of /v1/recommend, items that /v1/complete adds, hits of /v1/items.
    listed_items : int
        Items of `exclude` and of `candidates`.
    samples : int
        Sets of one /v1/sample.
    map_items : int
        Points of /v1/map.
    pending : int
        Requests that wait for their turn; the next one is refused with 503.
    timeout : float
        Seconds from the first byte of a request to its answer.
    """

    body_bytes: int = 1_000_000
    basket_items: int = 1_000
    batch: int = 256
    suggestions: int = 500
    listed_items: int = 20_000
    samples: int = 100
    map_items: int = 600
    pending: int = 512
    timeout: float = 10.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ParameterError(f"the limit {name} must be positive, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Everything that `create_app` needs to know.

    Attributes
    ----------
    model : str
        Path of the model file.
    token : str, optional
        The bearer token that feedback and reload require.
    feedback : str, optional
        Path of the feedback log; without it feedback is refused.
    limits : Limits
    watch_seconds : float
        How often the model file is looked at for a change; 0 for never.
    n_jobs : int
        Threads of one model call.
    access_log : bool
        Whether every request is logged.
    log_bodies : bool
        Whether the access log shows what was asked.
    shared_dir : str, optional
        Where the workers of one server keep their counters, so that each can report the sum, and the last good model,
        so that a worker that starts beside a bad file has one.
    """

    model: str
    token: str | None = field(default=None, repr=False)
    feedback: str | None = None
    limits: Limits = field(default_factory=Limits)
    watch_seconds: float = 1.0
    n_jobs: int = 1
    access_log: bool = True
    log_bodies: bool = False
    shared_dir: str | None = None

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ParameterError("the token must be printable ASCII, and not empty")

    def to_environment(self) -> dict[str, str]:
        """The environment variables from which a worker process takes these settings."""
        told = asdict(self)
        token = told.pop("token")
        return {ENVIRONMENT: json.dumps(told)} | ({TOKEN: token} if token else {})

    @classmethod
    def from_environment(cls) -> Self:
        """The settings that `to_environment` described."""
        try:
            told = json.loads(os.environ[ENVIRONMENT])
            limits = Limits(**told.pop("limits"))
            return cls(**told, limits=limits, token=os.environ.get(TOKEN) or None)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ParameterError(f"{ENVIRONMENT} does not hold the settings of a server: {error}") from error


def beyond_loopback(host: str) -> bool:
    """Whether a server on this host can be reached from other machines."""
    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True
