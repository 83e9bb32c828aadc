"""What a table of types says of a topic's rows."""

from __future__ import annotations

import pyarrow as pa

from headrace.sinks.kafka_rows import column_types


def test_types_of_columns_with_odd_names_and_nested_types() -> None:
    ddl = """`a, b` bigint, `c``d` DECIMAL(12, 2) NOT NULL, e struct<f:array<int>,g:string>,
        h map<string,int>, i timestamp"""
    assert column_types(ddl) == {
        "a, b": pa.int64(),
        "c`d": pa.decimal128(12, 2),
        "e": None,
        "h": None,
        "i": pa.timestamp("us", tz="UTC"),
    }
    assert column_types("") == {}
