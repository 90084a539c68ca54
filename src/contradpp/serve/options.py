"""What a server is told: which model, how much a request may ask for, who may ask, and where feedback goes."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from contradpp.errors import ParameterError

ENVIRONMENT = "CONTRADPP_SERVE"  # how the parent tells its workers; the token travels apart from it
TOKEN = "CONTRADPP_TOKEN"
# Set before a worker starts, it makes prometheus-client keep its counts in files that every worker can read. Those of
# workers that have ended stay, so that a sum never falls.
SHARED = "PROMETHEUS_MULTIPROC_DIR"


def _most(default: float, what: str) -> Any:
    """Return the field of a limit, with the words of its option."""
    return field(default=default, metadata={"help": what})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one request may ask for, and the most that may be asked at a time."""

    body_bytes: int = _most(1_000_000, "Length of a request's body, however it is sent.")
    basket_items: int = _most(1_000, "Items of one basket.")
    batch: int = _most(256, "Baskets of one request.")
    suggestions: int = _most(
        500, "n of /v1/recommend and /v1/slate, k of /v1/rerank, items that /v1/complete adds, hits of /v1/items."
    )
    listed_items: int = _most(20_000, "Items of `exclude` and of `candidates`.")
    samples: int = _most(100, "Sets of one /v1/sample.")
    map_items: int = _most(600, "Points of /v1/map.")
    work: float = _most(1e11, "About how many multiply-adds one request may take: some ten seconds of one thread.")
    pending: int = _most(512, "Requests that wait for their turn; the next one is refused with 503.")
    connections: int = _most(512, "Open connections of a worker; the next one replaces the one that was idle longest.")
    timeout: float = _most(10.0, "Seconds for the head of a request, and from there to its answer.")

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ParameterError(f"the limit {name} must be positive, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Everything that `create_app` needs to know."""

    model: str
    """Path of the model file."""
    token: str | None = field(default=None, repr=False)
    """The bearer token that feedback, new items and reload require."""
    feedback: str | None = None
    """Path of the feedback log; without it feedback is refused."""
    feedback_bytes: int = 64_000_000
    """Length from which the log is set aside as PATH.1, PATH.2, ... and a new one is begun."""
    hosts: tuple[str, ...] = ()
    """Names that the server answers to besides localhost and any IP address, "*.shop.example" for all below one, "*"
    for all: a page of another site whose name was made to point here is refused."""
    limits: Limits = field(default_factory=Limits)
    watch_seconds: float = 1.0
    """How often the model file is looked at for a change; 0 for never."""
    n_jobs: int = 1
    """Threads of one model call, whatever the model file says."""
    access_log: bool = True
    """Whether every request is logged."""
    log_bodies: bool = False
    """Whether the access log shows what was asked."""
    shared_dir: str | None = None
    """Where the workers of one server keep the last good model, for one that starts beside a bad file."""

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ParameterError("the token must be printable ASCII, and not empty")
        for name in self.hosts:
            if "*" in name[1:] or (name.startswith("*") and name != "*" and not name.startswith("*.")):
                raise ParameterError(f"a host name may begin with '*.' and has no other '*', got {name!r}")
        if self.feedback_bytes < 1:
            raise ParameterError(f"feedback_bytes must be positive, got {self.feedback_bytes}")

    def to_environment(self) -> dict[str, str]:
        """Return the environment variables from which a worker process takes these settings."""
        told = asdict(self)
        token = told.pop("token")
        return {ENVIRONMENT: json.dumps(told)} | ({TOKEN: token} if token else {})

    @classmethod
    def from_environment(cls) -> Self:
        """Read the settings that `to_environment` described."""
        try:
            told = json.loads(os.environ[ENVIRONMENT])
            limits, hosts = Limits(**told.pop("limits")), tuple(told.pop("hosts"))
            return cls(**told, limits=limits, hosts=hosts, token=os.environ.get(TOKEN) or None)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ParameterError(f"{ENVIRONMENT} does not hold the settings of a server: {error}") from error


def is_address(host: str) -> bool:
    """Return whether a host is an IP address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def beyond_loopback(host: str) -> bool:
    """Return whether a server on this host can be reached from other machines."""
    return host != "localhost" and not (is_address(host) and ipaddress.ip_address(host).is_loopback)
