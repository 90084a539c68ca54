"""Docstrings of overriding methods in the reference: those of the methods that they override."""

from __future__ import annotations

from typing import Any

import griffe


class InheritedDocstrings(griffe.Extension):
    """An extension of Griffe, as `mkdocs.yml` names it."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:  # noqa: ARG002
        """Give every member of a class without a docstring the one that it inherits."""
        _inherit(pkg)


def _inherit(part: griffe.Module | griffe.Class) -> None:
    for name, member in part.members.items():
        if member.is_alias:
            continue
        if isinstance(part, griffe.Class) and not member.docstring:
            bases = [base.members[name] for base in part.mro() if name in base.members]
            member.docstring = next((one.docstring for one in bases if one.docstring), None)
        if isinstance(member, griffe.Module | griffe.Class):
            _inherit(member)
