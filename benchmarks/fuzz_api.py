"""Thousands of made-up requests from our own OpenAPI document against a server on the loopback: no 5xx allowed.

python benchmarks/fuzz_api.py                 # at least 5,000 requests
python benchmarks/fuzz_api.py --cases 500 --seed 1
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import contradpp as cd
from load import serving

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
FEW = 20  # requests to endpoints that take no arguments


def main() -> None:
    """Ask, check every answer, and print how many there were of which status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000, help="at least so many requests")
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    shop = cd.datasets.load("grocer", n_baskets=2000, random_state=0)
    model = cd.LowRankDPP(n_components=20, max_iter=3, oversize="clip", random_state=0).fit(shop)
    statuses: Counter[tuple[str, int]] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "feedback.jsonl"
        with serving(model, workers=1, threads=1, more=["--feedback", str(log)]) as (port, _):
            url = f"http://127.0.0.1:{port}"
            with urllib.request.urlopen(f"{url}/openapi.json") as answer:
                document = json.load(answer)
            half = -(-told.cases // 2)
            fuzz(document, url, half, told.seed, statuses, failures)
            informed = with_items(document, [*shop.items[:12], "who?", 7])
            fuzz(informed, url, told.cases, told.seed + 100, statuses, failures)
    print(f"{sum(statuses.values()):,} requests")
    for (operation, status), count in sorted(statuses.items()):
        print(f"  {operation:<22}{status:>5}{count:>8,}")
    errors = sum(count for (_, status), count in statuses.items() if status >= 500)
    print(f"5xx: {errors}   other failures: {len(failures)}")
    for text in failures[:5]:
        print(text)
    sys.exit(bool(errors or failures))


def with_items(document: dict[str, Any], items: list[Any]) -> dict[str, Any]:
    """The document with items of the catalogue where a request names any: most made-up ones are not in it."""
    found = copy.deepcopy(document)
    anything = [{"type": "string"}, {"type": "integer"}]

    def visit(part: Any) -> None:
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            visit(inner)
        if isinstance(part, dict) and part.get("anyOf") == anything:
            del part["anyOf"]
            part["enum"] = items

    for name, schema in found["components"]["schemas"].items():
        if name.endswith("Request"):
            visit(schema)
    return found


def fuzz(
    document: dict[str, Any], url: str, until: int, start: int, statuses: Counter[tuple[str, int]], failures: list[str]
) -> None:
    """Send made-up requests to every operation, right and wrong ones, until there were so many in all."""
    schema = schemathesis.openapi.from_dict(document)
    operations = [schema[path][method] for path, methods in document["paths"].items() for method in methods]
    rich = [one for one in operations if one.body or one.query]
    session = requests.Session()
    share = -(-(until - sum(statuses.values())) // (2 * len(rich)))
    for turn in range(10):
        if sum(statuses.values()) >= until:
            break
        for operation in operations:
            name = f"{operation.method.upper()} {operation.path}"
            for kind in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)[: 2 if operation in rich else 1]:
                examples = share if operation in rich else FEW
                strategy = operation.as_strategy(generation_mode=kind)
                try:
                    send_all(strategy, url, examples, start + turn, name, statuses, session)
                except Exception as error:  # whatever a check raises
                    failures.append(f"{name} ({kind}): {error}")


def send_all(
    strategy: st.SearchStrategy[schemathesis.Case], url: str, examples: int, start: int, name: str,
    statuses: Counter[tuple[str, int]], session: requests.Session,
) -> None:  # fmt: skip
    """Send as many requests as asked, and check their answers."""

    @seed(start)
    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )  # fmt: skip
    @given(case=strategy)
    def one(case: schemathesis.Case) -> None:
        response = case.call(base_url=url, session=session)
        statuses[name, response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    one()


if __name__ == "__main__":
    main()
