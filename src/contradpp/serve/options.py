"""What a server is told: which model, how much a request may ask for, who may ask, and where feedback goes."""

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
    """The most that one request may ask for, and the most that may be asked at a time.

    Attributes
    ----------
    body_bytes : int
        Length of a request's body, however it is sent.
    basket_items, batch : int
        Items of one basket; baskets of one request.
    suggestions : int
        n of /v1/recommend, items that /v1/complete adds, hits of /v1/items.
    listed_items : int
        Items of `exclude` and of `candidates`.
    samples, map_items : int
        Sets of one /v1/sample; points of /v1/map.
    work : float
        About how many multiply-adds one request may take: some ten seconds of one thread.
    pending : int
        Requests that wait for their turn; the next one is refused with 503.
    connections : int
        Open connections of one worker; the next one takes the place of the one that has been idle longest.
    timeout : float
        Seconds for the head of a request, and from there to its answer.
    """

    body_bytes: int = 1_000_000
    basket_items: int = 1_000
    batch: int = 256
    suggestions: int = 500
    listed_items: int = 20_000
    samples: int = 100
    map_items: int = 600
    work: float = 1e11
    pending: int = 512
    connections: int = 512
    timeout: float = 10.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ParameterError(f"the limit {name} must be positive, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Everything that `create_app` needs to know.

    Attributes
    ----------
    model : str
        Path of the model file.
    token : str, optional
        The bearer token that feedback and reload require.
    feedback : str, optional
        Path of the feedback log; without it feedback is refused.
    hosts : tuple of str
        Names that the server answers to besides localhost and any IP address; "*" for all. A page of another site
        whose name was made to point here is refused by it.
    limits : Limits
    watch_seconds : float
        How often the model file is looked at for a change; 0 for never.
    n_jobs : int
        Threads of one model call, whatever the model file says.
    access_log : bool
        Whether every request is logged.
    log_bodies : bool
        Whether the access log shows what was asked.
    shared_dir : str, optional
        Where the workers of one server keep the last good model, for one that starts beside a bad file.
    """

    model: str
    token: str | None = field(default=None, repr=False)
    feedback: str | None = None
    hosts: tuple[str, ...] = ()
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
            limits, hosts = Limits(**told.pop("limits")), tuple(told.pop("hosts"))
            return cls(**told, limits=limits, hosts=hosts, token=os.environ.get(TOKEN) or None)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ParameterError(f"{ENVIRONMENT} does not hold the settings of a server: {error}") from error


def is_address(host: str) -> bool:
    """Whether a host is an IP address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def beyond_loopback(host: str) -> bool:
    """Whether a server on this host can be reached from other machines."""
    return host != "localhost" and not (is_address(host) and ipaddress.ip_address(host).is_loopback)
