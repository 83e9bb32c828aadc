"""Generates orders, some of them bad, and the headrace.yaml of a view of the good ones."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import yaml

ORDERS = 20_000
CUSTOMERS = (
    *("Ada", "Bela", "Chen", "Dilek", "Emil", "Farah", "Goran", "Hana"),
    *("Ines", "Jonas", "Kofi", "Lena", "Mira", "Nils", "Olga", "Paul"),
)
CHANNELS = ("web", "shop", "phone")
# The percentage of orders with this fault; an order may have several faults.
BAD_PERCENT = 2

VIEW = "sales"
COLLECTION = "orders"
MISSING_CUSTOMER, NOT_POSITIVE, UNKNOWN_CHANNEL = "schema:/customer", "positive", "known_channel"

SCHEMA = pa.schema(
    [
        ("last_order", pa.int64()),
        ("customer", pa.string()),
        ("orders", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        ("largest", pa.decimal128(12, 2)),
        ("channel", pa.string()),
    ]
)

_FILE = """\
# The server and the pipeline read this file.
data: {data}
ingest: {{commit_interval: 2s}}
collections:
  orders:
    key: [/customer]
    schema:
      type: object
      required: [customer]
      reduce: {{strategy: merge}}
      properties:
        customer: {{type: string}}
        orders: {{type: integer, reduce: {{strategy: sum}}}}
        amount: {{type: string, format: "decimal(18,2)", reduce: {{strategy: sum}}}}
        largest: {{type: string, format: "decimal(18,2)", reduce: {{strategy: maximize}}}}
        last_order: {{type: integer}}
        channel: {{type: string}}
    invalid: drop
    quality:
      - {{name: positive, range: {{field: amount, minimum: "0.01"}}}}
      - {{name: known_channel, in_set: {{field: channel, values: [web, shop, phone]}}}}
materializations:
  sales:
    connector: sqlite
    config: {{path: {database}}}
    trigger: 1s
    guarantee: exactly-once
    bindings:
      - collection: orders
        resource: {{table: sales}}
        fields: {{exclude: [channel]}}
spark:
  master: local[2]
  conf:
    spark.driver.memory: 512m
    spark.sql.shuffle.partitions: "2"
    # Killed processes leave their files in this folder.
    spark.local.dir: {scratch}
    spark.driver.extraJavaOptions: {java}
"""


class Places:
    """The files of the demo, in a separate folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "headrace.yaml"
        self.data = folder / "data"
        self.database = folder / "sales.db"
        self.scratch = folder / "scratch"
        self.state = self.data / "state/materializations" / VIEW
        self.dead_letters = self.data / "state/dead-letters" / VIEW / f"materialization={VIEW}"

    def write_file(self) -> None:
        self.scratch.mkdir()
        # Starting Spark takes most of its time here, so the compiler that is quick to start does.
        java = f'-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "-Djava.io.tmpdir={self.scratch}"'
        paths = {"data": self.data, "database": self.database, "scratch": self.scratch, "java": java}
        quoted = {name: _quoted(str(value)) for name, value in paths.items()}
        self.file.write_text(_FILE.format(**quoted))


def made_up_orders() -> pa.Table:
    draw = random.Random(2026)  # noqa: S311 - the same orders each time
    rows = []
    for number in range(ORDERS):
        cents = draw.randrange(1, 50_000)
        if draw.randrange(100) < BAD_PERCENT:
            cents = -cents
        amount = Decimal(cents).scaleb(-2)
        rows.append(
            {
                "last_order": number,
                "customer": None if draw.randrange(100) < BAD_PERCENT else draw.choice(CUSTOMERS),
                "orders": 1,
                "amount": amount,
                "largest": amount,
                "channel": "fax" if draw.randrange(100) < BAD_PERCENT else draw.choice(CHANNELS),
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)


def _quoted(text: str) -> str:
    """Writes a value as YAML on one line, for any path."""
    dumped: str = yaml.safe_dump(text, width=10_000, default_style='"')
    return dumped.strip()
