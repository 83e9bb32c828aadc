"""Apply: what has to be recorded of the prefixes before documents go there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.connectors.redis.config import RedisResource
from headrace.connectors.redis.constraints import layout_problem, type_conflict
from headrace.connectors.redis.layouts import LAYOUTS_KEY, Layout
from headrace.connectors.redis.session import Command
from headrace.errors import EndpointError


@dataclass(frozen=True)
class Change:
    """The new layout of a prefix, and in words what is new about it."""

    prefix: str
    layout: Layout
    news: tuple[str, ...]

    @property
    def command(self) -> Command:
        return ("HSET", LAYOUTS_KEY, self.prefix, self.layout.to_json())


def plan(wanted: Layout, resource: RedisResource, layouts: Mapping[str, Layout]) -> Change | None:
    """The change to one prefix, if there is one; refuses what no change can bring about."""
    prefix, layout = resource.prefix, layouts.get(resource.prefix)
    if layout is None:
        keys = ", ".join(name for name, _ in wanted.keys)
        return Change(prefix, wanted, (f"prefix {prefix}: {wanted.kind}, by {keys}",))
    problem = layout_problem(wanted.keys, resource, layout)
    news: list[str] = []
    for name, field_type in wanted.fields.items():
        stored = layout.fields.get(name)
        problem = problem or type_conflict(name, field_type, stored)
        if stored is None:
            news.append(f"prefix {prefix}: new field {name}, {field_type}")
        elif stored != field_type:
            news.append(f"prefix {prefix}: field {name} is {field_type} now, and was {stored}")
    if problem:
        raise EndpointError(problem)
    if not news:
        return None
    return Change(prefix, replace(layout, fields={**layout.fields, **wanted.fields}), tuple(news))
