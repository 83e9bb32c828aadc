"""Apply: plans the layouts to record for prefixes before documents are written there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.connectors.ownership import describe_mark, refuse_other
from headrace.connectors.redis.config import RedisResource
from headrace.connectors.redis.constraints import layout_problem, type_conflict
from headrace.connectors.redis.fence import fences_key
from headrace.connectors.redis.layouts import LAYOUTS_KEY, STORED_KEY, Layout, record_stored
from headrace.connectors.redis.session import Command
from headrace.errors import EndpointError


@dataclass(frozen=True)
class Change:
    """The new layout of a prefix, the commands that record it, and a description of the change."""

    prefix: str
    layout: Layout
    news: tuple[str, ...]
    also: tuple[Command, ...] = ()

    @property
    def commands(self) -> list[Command]:
        return [("HSET", LAYOUTS_KEY, self.prefix, self.layout.to_json()), *self.also]


def plan(
    wanted: Layout, resource: RedisResource, layouts: Mapping[str, Layout], *, adopts: bool = False
) -> Change | None:
    """Returns the change to one prefix, if there is one; refuses an impossible change."""
    prefix, layout = resource.prefix, layouts.get(resource.prefix)
    where = f"prefix {prefix}"
    if layout is None:
        keys = ", ".join(name for name, _ in wanted.keys)
        created = f"{where}: {wanted.kind}, by {keys}"
        marked = [describe_mark(where, None, wanted.owner)] if wanted.lineage else []
        # Rows that were stored under the previous layout no longer exist.
        return Change(prefix, wanted, (created, *marked), (("HDEL", STORED_KEY, prefix),))
    if layout.materialization != wanted.materialization:  # another key or mode is a problem of its layout
        refuse_other(f"prefix {prefix!r}", layout.owner, wanted.owner, adopts=adopts)
    changed, news = _with_fields(layout, wanted, resource)
    also: list[Command] = []
    if wanted.lineage and layout.owner != wanted.owner:
        news.append(describe_mark(where, layout.owner, wanted.owner))
        changed = replace(changed, materialization=wanted.materialization, lineage=wanted.lineage)
        if layout.lineage is None:
            also.append(record_stored(prefix))
        if layout.materialization != wanted.materialization:
            # A stream of it that still runs is replaced, and writes nothing from then on.
            also.append(("DEL", fences_key(layout.materialization)))
    return Change(prefix, changed, tuple(news), tuple(also)) if news else None


def _with_fields(layout: Layout, wanted: Layout, resource: RedisResource) -> tuple[Layout, list[str]]:
    """Returns the layout with the wanted fields, and a description of the new ones."""
    problem = layout_problem(wanted.keys, resource, layout)
    news: list[str] = []
    for name, field_type in wanted.fields.items():
        stored = layout.fields.get(name)
        problem = problem or type_conflict(name, field_type, stored)
        if stored is None:
            news.append(f"prefix {resource.prefix}: new field {name}, {field_type}")
        elif stored != field_type:
            news.append(f"prefix {resource.prefix}: field {name} is {field_type} now, and was {stored}")
    if problem:
        raise EndpointError(problem)
    return replace(layout, fields={**layout.fields, **wanted.fields}), news
