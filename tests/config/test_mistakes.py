"""What is said of mistakes in the pipelines' part of `headrace.yaml`: the line, the key, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import load_config
from tests.config.files import refusal_of, written

GOOD = """\
collections:
  orders:
    key: [/id]
    schema:
      type: object
      properties:
        id: {type: integer}
        name: {type: string}
        amount: {type: number}
        day: {type: string, format: date}
        at: {type: string, format: date-time}
        paid: {type: boolean}
        lines: {type: array}
      required: [id]
    quality:
      - {name: named, not_null: name}
      - name: sane
        range:
          field: amount
          minimum: 0
          maximum: 100
materializations:
  sales:
    connector: sqlite
    config:
      path: sales.db
    shards: 2
    bindings:
      - collection: orders
        resource: {table: orders}
        fields:
          include: [name]
"""

# What is written in place of what: line, key and sentence.
MISTAKES = [
    ("shards: 2", "shards: two", 27, "materializations.sales.shards: write a whole number"),
    ("shards: 2", "shards: 0", 27, "materializations.sales.shards: it must be greater than 0"),
    (
        "shards: 2",
        "shard: 2",
        27,
        "materializations.sales.shard: this key is not known; the keys here are connector, config, sinks, "
        "shards, trigger, limits, guarantee, dead_letters, bindings",
    ),
    ("    connector: sqlite\n", "", 23, "materializations.sales: give a connector, or sinks, or both"),
    (
        "resource: {",
        "resorce: {",
        30,
        "materializations.sales.bindings.0.resorce: this key is not known; "
        "the keys here are collection, resource, sinks, fields, source",
    ),
    (
        "connector: sqlite",
        "connector: sqlitte",
        24,
        "materializations.sales.connector: there is no connector 'sqlitte'; "
        "there are files, postgres, redis, sqlite, webhook",
    ),
    (
        "connector: sqlite",
        "connector: {name: sqlite, grpc: here}",
        24,
        "materializations.sales.connector.grpc: write HOST:PORT, such as 127.0.0.1:9000, or unix:/path",
    ),
    ("  sales:", "  sales report:", 23, "materializations.sales report: a name has letters, digits, dashes"),
    ("  sales:", "  dead-letters:", 23, "materializations.dead-letters: dead-letters is a folder in state"),
    ("  sales:", "  7:", 23, "materializations.7: write it as text, in quotes"),
    ("  orders:\n", "  no-orders:\n", 2, "collections.no-orders: 'no-orders' is not a name of a collection"),
    (
        "- collection: orders",
        "- collection: order",
        29,
        "materializations.sales.bindings.0.collection: there is no collection 'order'; there are orders",
    ),
    (
        "include: [name]",
        "include: [name, nmae]",
        32,
        "materializations.sales.bindings.0.fields.include.1: collection 'orders' has no field 'nmae'; "
        "it has id, name, amount, day, at, paid, lines",
    ),
    (
        "include: [name]",
        "include: [name]\n          exclude: [day, name]",
        33,
        "materializations.sales.bindings.0.fields.exclude.1: 'name' is also included: remove one",
    ),
    (
        "key: [/id]",
        "key: [/id]\n    keys: [/id]",
        4,
        "collections.orders.keys: this key is not known; the keys here are key, schema, invalid, quality",
    ),
    ("key: [/id]", "key: []", 3, "collections.orders.key: write at least one"),
    ("key: [/id]", "key: id", 3, "collections.orders.key: 'id' is not a JSON pointer to a field"),
    ("key: [/id]", "key: /nr", 3, "collections.orders.key: collection 'orders' has no location /nr"),
    (
        "      required: [id]\n",
        "",
        3,
        "collections.orders.key: key /id of collection 'orders' can be missing",
    ),
    (
        "amount: {type: number}",
        "amount: {type: number, reduce: {strategy: add}}",
        4,
        "collections.orders.schema: reduce annotation at \"/properties/amount/reduce\" has strategy 'add'",
    ),
    ("name: {type: string}", "name: {type: strin}", 4, "collections.orders.schema: "),
    (
        "{type: string}",
        "{type: string, default: !!binary aGk=}",
        4,
        "collections.orders.schema: it holds something",
    ),
    (
        "not_null: name}",
        "not_null: [id, nmae]}",
        16,
        "collections.orders.quality.0.not_null.1: the schema has no field 'nmae'; it has id, name, amount,",
    ),
    (
        "not_null: name}",
        "unique: nmae}",
        16,
        "collections.orders.quality.0.unique.0: the schema has no field 'nmae'",
    ),
    (
        "field: amount",
        "field: amuont",
        19,
        "collections.orders.quality.1.range.field: the schema has no field",
    ),
    (
        "not_null: name}",
        "not_null: name, unique: id}",
        16,
        "collections.orders.quality.0: a rule has exactly one of not_null, range, regex, in_set, unique, "
        "expression; this one has not_null and unique",
    ),
    (", not_null: name}", "}", 16, "collections.orders.quality.0: a rule has exactly one of"),
    (
        "name: sane",
        "name: named",
        17,
        "collections.orders.quality.1.name: another rule has the name 'named' too",
    ),
    (
        "name: named,",
        "name: 'schema:/x',",
        16,
        "quality.0.name: 'schema:/x' is the name of something that is wrong by the schema: rename it",
    ),
    ("name: named,", "name: json,", 16, "quality.0.name: 'json' is the name of something that is wrong by"),
    (
        "        paid: {type: boolean}",
        "        _Raw: {type: boolean}",
        12,
        "collections.orders.schema.properties._Raw: this is a name of the pipeline's own: rename it",
    ),
    ("        paid: {", "        _nested0: {", 12, "schema.properties._nested0: this is a name of the"),
    (
        "not_null: name}",
        "in_set: {field: id, values: [1, 1.5]}}",
        16,
        "in_set.values.1: the field 'id' is integer, and 1.5 has more than 0 fraction digits",
    ),
    (
        "not_null: name}",
        "range: {field: id, maximum: 9223372036854775808}}",
        16,
        "range.maximum: the field 'id' is integer, and 9223372036854775808 is beyond what it can hold",
    ),
    (
        "not_null: name}",
        "range: {field: id, minimum: 1.1, maximum: 1.9}}",
        16,
        "range.minimum: nothing lies between it and maximum, 1.9",
    ),
    (
        "not_null: name}",
        "not_null: name, action: ignore}",
        16,
        "collections.orders.quality.0.action: write 'drop', 'fail' or 'warn'",
    ),
    (
        "maximum: 100",
        "maximum: -1",
        20,
        "collections.orders.quality.1.range.minimum: nothing lies between it and maximum, -1",
    ),
    (
        "maximum: 100",
        "maximum: many",
        21,
        "collections.orders.quality.1.range.maximum: the field 'amount' is number: write a number",
    ),
    ("maximum: 100", "maximum: true", 21, "the field 'amount' is number: write a number"),
    ("maximum: 100", "maximum: .nan", 21, "the field 'amount' is number: write a number"),
    ("maximum: 100", "maximum: [1]", 21, "quality.1.range.maximum: write a number, a text, true or false"),
    (
        "          minimum: 0\n          maximum: 100\n",
        "",
        18,
        "quality.1.range: give minimum or maximum or both",
    ),
    (
        "not_null: name}",
        "range: {field: day, minimum: soon}}",
        16,
        "range.minimum: the field 'day' is date: write a date, such as",
    ),
    (
        "not_null: name}",
        "range: {field: day, minimum: 2026-02-01, maximum: 2026-01-31}}",
        16,
        "nothing lies between it and maximum",
    ),
    # As texts these would be in the other order.
    (
        "not_null: name}",
        "range: {field: at, minimum: '2026-01-01T00:30:00Z', maximum: '2026-01-01T01:00:00+01:00'}}",
        16,
        "nothing lies between it and maximum",
    ),
    (
        "not_null: name}",
        "range: {field: lines, minimum: 0}}",
        16,
        "range.field: the field 'lines' is json, which this check is not for: use an expression",
    ),
    ("not_null: name}", "range: {field: paid, minimum: 0}}", 16, "range.field: the field 'paid' is boolean"),
    (
        "not_null: name}",
        "in_set: {field: name, values: [new, 7]}}",
        16,
        "collections.orders.quality.0.in_set.values.1: the field 'name' is string: write text, in quotes",
    ),
    (
        "not_null: name}",
        "in_set: {field: name, values: [yes]}}",
        16,
        "'name' is string: write text, in quotes",
    ),
    ("not_null: name}", "in_set: {field: paid, values: [paid]}}", 16, "is boolean: write true or false"),
    (
        "not_null: name}",
        "in_set: {field: lines, values: [1]}}",
        16,
        "in_set.field: the field 'lines' is json",
    ),
    (
        "not_null: name}",
        "in_set: {field: name, values: []}}",
        16,
        "collections.orders.quality.0.in_set.values: ",
    ),
    (
        "not_null: name}",
        "regex: {field: name, pattern: '[A-Z'}}",
        16,
        "quality.0.regex.pattern: this is no regular expression: unterminated character set",
    ),
    (
        "not_null: name}",
        "regex: {field: amount, pattern: '1'}}",
        16,
        "regex.field: the field 'amount' is number",
    ),
    (
        "    quality:",
        "    invalid: warn\n    quality:",
        15,
        "collections.orders.invalid: write 'fail' or 'drop'",
    ),
    (
        "    shards: 2",
        "    trigger: often",
        27,
        "sales.trigger: write once, continuous, or a time such as 5s",
    ),
    ("    shards: 2", "    trigger: -5s", 27, "sales.trigger: write once, continuous, or a time such as 5s"),
    ("    shards: 2", "    limits: {rows: 0}", 27, "sales.limits.rows: it must be greater than 0"),
    ("    shards: 2", "    guarantee: twice", 27, "sales.guarantee: write 'at-most-once', 'at-least-once', "),
    (
        "    shards: 2",
        "    dead_letters: {format: csv, location: x}",
        27,
        "sales.dead_letters.format: there is no sink 'csv'; there are delta, hudi, iceberg, kafka, parquet",
    ),
    (
        "    shards: 2",
        "    dead_letters: {format: iceberg, location: dead}",
        27,
        "sales.dead_letters.location: write the name of a table with its namespace, such as",
    ),
    (
        "    shards: 2",
        "    dead_letters: {location: 's3:/bucket'}",
        27,
        "sales.dead_letters.location: write a URL",
    ),
    (
        "    bindings:\n",
        "    bindings: []\n    x:\n",
        28,
        "materializations.sales.bindings: write at least one",
    ),
]
# Added to a binding, as its source.
SOURCES = [
    ("{}", "give one of kafka and format; without a source, the collection's own table is read"),
    ("{kafka: {bootstrap: 'a:1', topic: t}, format: rate}", "give one of kafka and format"),
    ("{kafka: {bootstrap: 'a:1', topic: t}, options: {a: b}}", "options, order_by and schema go with format"),
    (
        "{kafka: {bootstrap: 'a:1', topic: my orders}}",
        ".kafka.topic: a topic's name has letters, digits, dots",
    ),
    ("{kafka: {bootstrap: 'a:1', topic: '..'}}", ".kafka.topic: a topic's name has letters, digits, dots"),
    ("{kafka: {bootstrap: 'a', topic: t}}", ".kafka.bootstrap: write HOST:PORT, or several with commas"),
    (
        "{kafka: {bootstrap: 'a:1 b:2', topic: t}}",
        ".kafka.bootstrap: write HOST:PORT, or several with commas",
    ),
    ("{kafka: {topic: t}}", ".kafka.bootstrap: this key is missing"),
    (
        "{kafka: {bootstrap: 'a:1', topic: t, starting_offsets: now}}",
        ".starting_offsets: write earliest, latest,",
    ),
    (
        "{kafka: {bootstrap: 'a:1', topic: t, options: {a: [b]}}}",
        ".kafka.options.a: write it as text, in quotes",
    ),
    (
        "{kafka: {bootstrap: 'a:1', topic: t, options: {kafka.security.protocol: SSL}}}",
        ".kafka.options: write security.protocol, without kafka. before it",
    ),
    ("{format: ''}", ".format: write something"),
]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"), MISTAKES, ids=[new.strip() for _, new, *_ in MISTAKES]
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    message = refusal_of(written(tmp_path, GOOD.replace(old, new, 1)))
    assert message.startswith(f"configuration {tmp_path}/headrace.yaml, line {line}: "), message
    assert said in message


@pytest.mark.parametrize(("source", "said"), SOURCES)
def test_a_source_that_is_none(tmp_path: Path, source: str, said: str) -> None:
    message = refusal_of(written(tmp_path, f"{GOOD}        source: {source}\n"))
    assert "headrace.yaml, line 33: materializations.sales.bindings.0.source" in message
    assert said in message


@pytest.mark.parametrize(
    ("added", "line", "said"),
    [
        ("profile: fast", 1, "profile: write 'dev-local', 'single-node-durable' or 'distributed-durable'"),
        ("profile: distributed-durable", None, "state: a folder does not survive its host: name a bucket"),
        ("state: ./x\nprofile: distributed-durable", 1, "state: a folder does not survive its host"),
        ("state: memory:///\n", 1, "state: memory does not survive the process: name a folder"),
        (
            "state: s3:/bucket",
            1,
            "state: write a URL, such as s3://bucket/prefix or file:///folder, or the path",
        ),
        ("state: {options: {}}", 1, "state.url: this key is missing"),
        (
            "state: s3://bucket/prefix",
            24,
            "materializations.sales.dead_letters: this key is missing: rule 'named' of collection 'orders' "
            "drops rows, and state is no folder: say where to",
        ),
        ("spark: {conf: {a: {b: c}}}", 1, "spark.conf.a: write it as text, in quotes"),
    ],
)
def test_what_holds_for_all(tmp_path: Path, added: str, line: int | None, said: str) -> None:
    message = refusal_of(written(tmp_path, f"{added}\n{GOOD}"))
    where = f", line {line}: " if line else ": "
    assert message.startswith(f"configuration {tmp_path}/headrace.yaml{where}{said}"), message


def test_rows_that_are_dropped_by_the_schema_want_dead_letters_too(tmp_path: Path) -> None:
    text = GOOD.replace("not_null: name}", "not_null: name, action: fail}").replace(
        "name: sane", "name: sane\n        action: warn"
    )
    text = "state: s3://bucket\n" + text.replace("    quality:", "    invalid: drop\n    quality:")
    assert "dead_letters: this key is missing: invalid: drop of collection 'orders'" in refusal_of(
        written(tmp_path, text)
    )


def test_dead_letters_that_die_with_the_host(tmp_path: Path) -> None:
    text = GOOD.replace("    shards: 2", "    dead_letters:\n      location: ./dead")
    said = refusal_of(written(tmp_path, f"profile: distributed-durable\nstate: s3://bucket\n{text}"))
    assert "line 30: materializations.sales.dead_letters.location: a folder does not survive its host" in said
    shared = text.replace("location: ./dead", "location: ./dead\n      shared: true")
    load_config(written(tmp_path, f"profile: distributed-durable\nstate: s3://bucket\n{shared}"))


def test_an_unset_variable_has_its_line(tmp_path: Path) -> None:
    text = GOOD.replace("path: sales.db", "path: '${HEADRACE_UNSET}.db'")
    assert refusal_of(written(tmp_path, text)).endswith(
        "line 26: materializations.sales.config.path: the environment variable 'HEADRACE_UNSET' is not set: "
        "set it"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "orders.json cannot be read: No such file or directory"),
        ("{", "orders.json, line 1: "),
        ("[]", "schema: write keys and values below it"),
        ('{"type": "object"}', "has no location /id in its schema"),
    ],
)
def test_a_schema_in_a_file(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "orders.json").write_text(content)
    text = "collections:\n  orders:\n    key: [/id]\n    schema: orders.json\n"
    message = refusal_of(written(tmp_path, text))
    assert f"{tmp_path}/headrace.yaml, line {3 if 'location' in said else 4}: collections.orders." in message
    assert said in message


def test_a_key_that_came_by_a_merge_has_the_line_where_it_is_written(tmp_path: Path) -> None:
    text = GOOD.replace("  sales:", "  sales: &sales") + "  more:\n    <<: *sales\n    shards: none\n"
    assert "line 35: materializations.more.shards: write a whole number" in refusal_of(
        written(tmp_path, text)
    )
    text = text.replace("shards: 2", "shards: zwei").replace("shards: none", "trigger: 1s")
    assert "line 27: materializations.sales.shards" in refusal_of(written(tmp_path, text))


def test_a_secret_is_in_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    for broken in (
        "config: '${SECRET}'",
        "connector: {name: sqlite, grpc: '${SECRET}'}\n    config: {}",
        "config: {}\n    trigger: '${SECRET}'",
        "config: {}\n    guarantee: '${SECRET}'",
        "config: {}\n    limits: {rows: '${SECRET}'}",
        "config: {}\n    dead_letters: {location: 's3:/${SECRET}'}",
    ):
        text = GOOD.replace("    config:\n      path: sales.db", f"    {broken}")
        text = text.replace("    connector: sqlite\n", "" if "grpc" in broken else "    connector: sqlite\n")
        message = refusal_of(written(tmp_path, text))
        assert "materializations.sales." in message
        assert "hunter2" not in message


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{Lu}++(?<rest>.*)",
        r"\Q(\E",
        "[[a](]",
        "[a-z&&[^b]]",
        "a{2}{3}",
        "a(?i)b",
        "^*",
    ],
)
def test_patterns_that_only_java_has_are_left_to_it(tmp_path: Path, pattern: str) -> None:
    rule = f"regex: {{field: name, pattern: '{pattern}'}}}}"
    load_config(written(tmp_path, GOOD.replace("not_null: name}", rule)))


@pytest.mark.parametrize("pattern", ["(a", "a)", "[z-a]", "[a"])
def test_patterns_that_nobody_has(tmp_path: Path, pattern: str) -> None:
    rule = f"regex: {{field: name, pattern: '{pattern}'}}}}"
    said = refusal_of(written(tmp_path, GOOD.replace("not_null: name}", rule)))
    assert "line 16: collections.orders.quality.0.regex.pattern: this is no regular expression: " in said


def test_rules_are_about_fields_at_the_root(tmp_path: Path) -> None:
    text = """
collections:
  orders:
    key: [/order/id]
    schema:
      properties:
        order: {type: object, properties: {id: {type: integer}}, required: [id]}
      required: [order]
    quality: [{name: has_id, not_null: order/id}]
"""
    said = refusal_of(written(tmp_path, text))
    assert "quality.0.not_null.0: the schema has no field 'order/id'; it has order" in said
