"""Settings of a server: its model file, limits, access and feedback log."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from contradpp.errors import ParameterError

# Environment variables by which the parent configures its workers.
ENVIRONMENT = "CONTRADPP_SERVE"
TOKEN = "CONTRADPP_TOKEN"
# Makes prometheus-client store its counts in files that all workers read. Files of workers that
# have ended stay, so that no sum decreases.
METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"


def _limit(default: float, description: str) -> Any:
    """Return the field of a limit with the help text of its option."""
    return field(default=default, metadata={"help": description})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one request, and on requests at a time."""

    body_bytes: int = _limit(1_000_000, "Length of a request's body, however it is sent.")
    basket_items: int = _limit(1_000, "Items of one basket.")
    batch: int = _limit(256, "Baskets of one request.")
    history: int = _limit(200, "Earlier baskets of a customer; each is bounded by basket_items.")
    suggestions: int = _limit(
        500,
        "n of /v1/recommend and /v1/slate, k of /v1/rerank, items that /v1/complete adds, "
        "hits of /v1/items.",
    )
    listed_items: int = _limit(20_000, "Items of `exclude` and of `candidates`.")
    samples: int = _limit(100, "Sets of one /v1/sample.")
    map_items: int = _limit(600, "Points of /v1/map.")
    work: float = _limit(
        1e11, "Approximate multiply-adds of one request: some ten seconds of one thread."
    )
    pending: int = _limit(512, "Requests in the queue; the next one is refused with 503.")
    connections: int = _limit(
        512, "Open connections of a worker; the next one replaces the one that was idle longest."
    )
    unsent_bytes: int = _limit(
        64_000_000,
        "Bytes of answers that wait to be sent by a worker; beyond it, the connections that were "
        "slowest to read are closed.",
    )
    timeout: float = _limit(
        10.0, "Seconds for the head of a request, and from there to its answer."
    )

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
    """Length at which the log is renamed to PATH.1, PATH.2, ... and a new one is begun."""
    hosts: tuple[str, ...] = ()
    """Host names besides localhost and IP addresses; other names are refused (DNS rebinding).
    "*.shop.example" allows all names below one, "*" allows all."""
    limits: Limits = field(default_factory=Limits)
    watch_seconds: float = 1.0
    """Seconds between two checks of the model file for a change; 0 for never."""
    n_jobs: int = 1
    """Threads of one model call, whatever the model file says."""
    access_log: bool = True
    """Log every request."""
    log_bodies: bool = False
    """Add the bodies of requests to the access log."""
    shared_dir: str | None = None
    """Directory of the last good model, for a worker that starts when the model file is bad."""

    def __post_init__(self) -> None:
        token = self.token
        if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
            raise ParameterError("the token must be printable ASCII, and not empty")
        for name in self.hosts:
            if name != "*" and "*" in name.removeprefix("*."):
                message = f"a host name may begin with '*.' and has no other '*', got {name!r}"
                raise ParameterError(message)
        if self.feedback_bytes < 1:
            raise ParameterError(f"feedback_bytes must be positive, got {self.feedback_bytes}")

    def to_environment(self) -> dict[str, str]:
        """Return the environment variables that configure a worker process."""
        values = asdict(self)
        token = values.pop("token")
        return {ENVIRONMENT: json.dumps(values)} | ({TOKEN: token} if token else {})

    @classmethod
    def from_environment(cls) -> Self:
        """Read the settings that `to_environment` wrote."""
        try:
            values = json.loads(os.environ[ENVIRONMENT])
            values["limits"] = Limits(**values["limits"])
            values["hosts"] = tuple(values["hosts"])
            return cls(**values, token=os.environ.get(TOKEN) or None)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            message = f"{ENVIRONMENT} does not hold the settings of a server: {error}"
            raise ParameterError(message) from error


def beyond_loopback(host: str) -> bool:
    """Return whether other machines can reach a server on this host."""
    if host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True
