"""The OpenAPI document, with the limits of this server in it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from contradpp.serve.settings import Limits

# Where the document says what each limit is: a request's field, or a parameter of a path.
FIELDS = {
    ("RecommendRequest", "n"): "suggestions", ("RecommendRequest", "basket"): "basket_items",
    ("RecommendRequest", "baskets"): "batch", ("RecommendRequest", "exclude"): "listed_items",
    ("CompleteRequest", "n"): "suggestions", ("CompleteRequest", "basket"): "basket_items",
    ("CompleteRequest", "exclude"): "listed_items", ("ScoreRequest", "basket"): "basket_items",
    ("ScoreRequest", "baskets"): "batch", ("SampleRequest", "n_samples"): "samples",
    ("SampleRequest", "given"): "basket_items", ("FeedbackRequest", "basket"): "basket_items",
    ("FeedbackRequest", "items"): "basket_items",
}  # fmt: skip
PARAMETERS = {
    ("/v1/items", "limit"): "suggestions",
    ("/v1/map", "limit"): "map_items",
    ("/v1/map", "items"): "map_items",
}


def describe_limits(app: FastAPI, limits: Limits) -> None:
    """Let `app.openapi()` tell what the server allows, so that clients need not find out."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        document = plain()
        for (schema, field), limit in FIELDS.items():
            _limit(document["components"]["schemas"][schema]["properties"][field], getattr(limits, limit))
        for (path, name), limit in PARAMETERS.items():
            for parameter in document["paths"][path]["get"]["parameters"]:
                if parameter["name"] == name:
                    _limit(parameter["schema"], getattr(limits, limit))
        return document

    app.openapi = described  # type: ignore[method-assign]


def _limit(schema: dict[str, Any], most: int) -> None:
    for one in (schema, *schema.get("anyOf", ())):
        if one.get("type") == "integer":
            one["maximum"] = most
        elif one.get("type") == "array":
            one["maxItems"] = most
