"""The base of parameter objects: settings of one part of an estimator."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

from contradpp.errors import ParameterError, did_you_mean


class Settings:
    """Parameters of one part of an estimator, readable and settable as scikit-learn expects.

    Subclasses are dataclasses. They work with `clone`, with `set_params(part__name=value)` of the
    estimator that holds them, and so with `GridSearchCV`.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the parameters by name."""
        names = [item.name for item in fields(self)]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        """Show what differs from the defaults, as scikit-learn does."""
        changed = [
            f"{item.name}={value!r}"
            for item in fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, item.name)) != item.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name."""
        if unknown := sorted(params.keys() - self.get_params().keys()):
            hint = did_you_mean(unknown[0], self.get_params())
            raise ParameterError(f"{type(self).__name__} has no parameter {unknown[0]!r}{hint}")
        for name, value in params.items():
            setattr(self, name, value)
        return self
