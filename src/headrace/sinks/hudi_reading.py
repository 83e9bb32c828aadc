"""A Hudi table without Spark, by the package `hudi`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError, EndpointUnavailable
from headrace.sinks.contract import Place


def read_rows(url: str, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
    table = _open(url)
    if table is None:
        return
    wanted = [
        *columns,
        *([place.owned] if place.owned else []),
        *([place.epoch] if epoch is not None else []),
    ]
    for batch in table.read():
        rows = pa.Table.from_batches([batch]).select(list(dict.fromkeys(wanted)))
        if place.owned:
            rows = rows.filter(pc.equal(rows[place.owned], place.writer))
        if epoch is not None:
            rows = rows.filter(pc.equal(rows[place.epoch], epoch))
        yield from rows.select(list(columns)).to_batches()


def audit_timeline(url: str, place: Place, decided: Mapping[int, int]) -> Iterator[str]:
    """What the commits say that are not archived yet: no epoch twice, and the last one there."""
    table = _open(url)
    if table is None:
        return
    prefix = f"headrace/{quote(place.writer, safe='')}/"
    times: defaultdict[str, Counter[int]] = defaultdict(Counter)
    last = -1
    timeline = table.get_timeline()
    for instant in timeline.get_completed_commits():
        said = json.loads(timeline.get_instant_metadata_in_json(instant)).get("extraMetadata") or {}
        for name, text in said.items():
            if not name.startswith(prefix):
                continue
            told = json.loads(text)
            last = int(told["epoch"])
            if told.get("rewound"):
                for later in [epoch for epoch in times[name] if epoch > last]:
                    del times[name][later]
            else:
                times[name][last] += 1
    for name, epochs in times.items():
        for epoch, count in sorted(epochs.items()):
            if count > 1:
                yield f"epoch {epoch} of {name.removeprefix('headrace/')} was committed {count} times"
    committed = max((epoch for epoch, rows in decided.items() if rows), default=-1)
    if last < committed:
        yield f"epoch {committed} was committed, and the table says that epoch {last} is its last"


def _open(url: str) -> Any:
    """None if there is no table, or nothing in it yet."""
    try:
        from hudi import HudiTableBuilder
    except ImportError:
        raise ConfigError(
            "to read a Hudi table without Spark, install its package: pip install hudi"
        ) from None
    try:
        table = HudiTableBuilder.from_base_uri(url).build()
        return table if table.get_timeline().get_completed_commits() else None
    except Exception as error:  # the package has one kind of error for all that can happen
        if "hoodie.properties" in str(error) or "not found" in str(error).lower():
            return None
        raise EndpointUnavailable(f"{url} cannot be read: {str(error).splitlines()[0]}") from error
