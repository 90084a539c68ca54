"""Made-up requests from our own OpenAPI document: no answer is a 5xx, every answer is as described.

`python -m experiments speed fuzz_api` does the same with thousands of requests.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contradpp.serve.app import create_app
from contradpp.serve.options import Limits, ServiceSettings

schemathesis = pytest.importorskip("schemathesis", reason="the interface's tests need Schemathesis (extra dev)")
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.generation import GenerationMode  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

EXAMPLES = 20
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
DOCUMENT = create_app(ServiceSettings(model="none")).openapi()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = [(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods]


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path}" for method, path in OPERATIONS])
def test_no_request_breaks_the_service(live, method, path):
    operation = SCHEMA[path][method]
    right = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    wrong = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
    cases = st.one_of(right, wrong) if operation.body or operation.query else right

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def fuzz(case):
        case.call_and_validate(base_url=live.url, checks=CHECKS)

    fuzz()


def test_the_document_tells_the_limits():
    document = create_app(ServiceSettings(model="none", limits=Limits(suggestions=7, batch=3))).openapi()
    fields = document["components"]["schemas"]["RecommendRequest"]["properties"]
    assert fields["n"]["maximum"] == 7
    assert fields["baskets"]["maxItems"] == 3
    assert document["paths"]["/v1/items"]["get"]["parameters"][1]["schema"]["maximum"] == 7


def test_the_document_names_every_endpoint():
    assert DOCUMENT["info"]["title"] == "contradpp"
    assert {*DOCUMENT["paths"]} == {
        "/v1/recommend", "/v1/slate", "/v1/rerank", "/v1/complete", "/v1/score", "/v1/sample", "/v1/feedback",
        "/v1/items", "/v1/map", "/v1/model", "/v1/reload", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
