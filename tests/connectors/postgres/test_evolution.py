"""What Apply does to a table, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError, EndpointError
from headrace.model.collections import Collection
from headrace.model.materializations import Materialization
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import materialization_of, samples
from tests.connectors.postgres.driving import CLIENT, apply, ask, columns_of, planned, run, things, write

GOLDEN = Path(__file__).parent / "golden"

BEFORE = things(
    ("id", "gone", "always"),
    gone={"type": "string"},
    always={"type": "string"},
    count={"type": "integer"},
    price={"type": "string", "format": "decimal(9,2)"},
)
AFTER = things(
    always={"type": "string"},
    count={"type": "number"},
    price={"type": "string", "format": "decimal(18,4)"},
    added={"type": "string", "format": "date-time"},
)


def test_what_apply_says_of_new_tables(postgres_url: str) -> None:
    views = ValidateBinding(samples.ALL_TYPES, {"table": "all types", "schema": "public"})
    deltas = ValidateBinding(samples.ORDERS, {"table": "deltas", "delta_updates": True})
    materialization = materialization_of(
        CLIENT, "view", "postgres", {"url": postgres_url}, [views, deltas], include=["object"]
    )
    dry = CLIENT.apply(Apply(materialization, "1", dry_run=True)).action_description
    assert ask(postgres_url, "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'") == []
    said = CLIENT.apply(Apply(materialization, "1")).action_description
    assert dry == said
    assert said + "\n" == (GOLDEN / "create.sql").read_text()
    assert CLIENT.apply(Apply(materialization, "1")).action_description == ""


def test_what_apply_says_of_changes(postgres_url: str) -> None:
    apply(postgres_url, BEFORE)
    assert apply(postgres_url, AFTER) + "\n" == (GOLDEN / "change.sql").read_text()
    assert apply(postgres_url, AFTER) == ""


def test_rows_outlive_changes(postgres_url: str) -> None:
    apply(postgres_url, BEFORE)
    write(postgres_url, BEFORE, {"id": 1, "gone": "kept", "always": "a", "count": 42, "price": "12.50"})
    apply(postgres_url, AFTER)
    new = {"id": 2, "count": 0.5, "price": "0.0001", "added": "2026-11-15T08:30:00Z"}
    assert write(postgres_url, AFTER, {"id": 1, "count": 1.5}, new, n=2) == 1
    rows = ask(
        postgres_url, "SELECT id, gone, always, count, price::text, added::text FROM things ORDER BY id"
    )
    assert rows == [
        (1, "kept", "a", 1.5, "12.5000", None),
        (2, None, None, 0.5, "0.0001", "2026-11-15 08:30:00+00"),
    ]


@pytest.mark.parametrize(
    ("narrow", "value", "wide", "stored"),
    [
        ({"type": "integer"}, 42, {"type": "string"}, "42"),
        ({"type": "integer"}, -(2**63), {"type": "string", "format": "decimal(21,2)"}, f"-{2**63}.00"),
        ({"type": "string", "format": "decimal(5,2)"}, "-1.50", {"type": "string"}, "-1.50"),
        ({"type": "string", "format": "date"}, "2026-11-15", {"type": "string"}, "2026-11-15"),
    ],
)
def test_widening(
    postgres_url: str, narrow: dict[str, Any], value: Any, wide: dict[str, Any], stored: str
) -> None:
    database = ask(postgres_url, "SELECT current_database()::text")[0][0]
    run(postgres_url, f"ALTER DATABASE {database} SET datestyle = 'SQL, DMY'")
    apply(postgres_url, things(field=narrow))
    write(postgres_url, things(field=narrow), {"id": 1, "field": value})
    apply(postgres_url, things(field=wide))
    assert ask(postgres_url, "SELECT field::text FROM things") == [(stored,)]
    assert apply(postgres_url, things(field=wide)) == ""


def changed(materialization: Materialization, collection: Collection) -> Materialization:
    """As if the constraints had not been looked at."""
    (binding,) = materialization.bindings
    values = tuple(field for field in collection.fields if field not in collection.key_fields)
    return replace(materialization, bindings=(replace(binding, collection=collection, values=values),))


def test_an_impossible_change_is_refused_and_nothing_is_changed(postgres_url: str) -> None:
    before = things(note={"type": "string"})
    apply(postgres_url, before)
    columns = columns_of(postgres_url)
    impossible = things(added={"type": "string"}, note={"type": "integer"})
    with pytest.raises(ConfigError, match="'note' is text in the table and the field is integer"):
        planned(postgres_url, impossible)
    materialization = changed(planned(postgres_url, before), impossible)
    for dry_run in (True, False):
        with pytest.raises(EndpointError, match="'note' is text in the table and the field is integer"):
            CLIENT.apply(Apply(materialization, "1", dry_run))
    assert columns_of(postgres_url) == columns


def test_what_the_server_refuses_is_rolled_back_as_a_whole(postgres_url: str) -> None:
    apply(postgres_url, things(count={"type": "integer"}))
    columns = columns_of(postgres_url)
    run(postgres_url, "CREATE VIEW reader AS SELECT count FROM things")
    after = things(added={"type": "string"}, count={"type": "number"})
    with pytest.raises(EndpointError, match=r"cannot alter type of a column used by a view .*SQLSTATE 0A000"):
        apply(postgres_url, after)
    assert columns_of(postgres_url) == columns


def test_a_wider_decimal_is_exact(postgres_url: str) -> None:
    narrow, wide = ({"type": "string", "format": f"decimal({digits})"} for digits in ("18,9", "38,20"))
    apply(postgres_url, things(field=narrow))
    write(postgres_url, things(field=narrow), {"id": 1, "field": "-123456789.123456789"})
    apply(postgres_url, things(field=wide))
    ((stored,),) = ask(postgres_url, "SELECT field::text FROM things")
    assert Decimal(stored) == Decimal("-123456789.123456789")
