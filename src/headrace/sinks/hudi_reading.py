"""A Hudi table without Spark, by the package `hudi`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError, EndpointUnavailable
from headrace.sinks.audits import ahead, behind, keys_twice, last_with_rows
from headrace.sinks.contract import Place

WENT_BACK = "headrace-rewound"
"""What a commit that takes something back has in its metadata, with whose it is in the value: the name of an
option of Spark's writers loses its capital letters."""
_NO_TABLE = "/.hoodie/hoodie.properties not found"


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


def audit_timeline(
    url: str, place: Place, decided: Mapping[int, int], last: Callable[[], int] | None
) -> Iterator[str]:
    """What the commits say that are not archived yet: no epoch twice, and the last one there."""
    table = _open(url)
    if table is None:
        if any(decided.values()):
            yield (
                f"there is no Hudi table in {url}, or no commit, and it has had epochs up to "
                f"{last_with_rows(decided)}"
            )
        return
    prefix = f"headrace/{quote(place.writer, safe='')}/"
    times: defaultdict[str, Counter[int]] = defaultdict(Counter)
    newest = -1
    timeline = table.get_timeline()
    for instant in timeline.get_completed_commits():
        said = json.loads(timeline.get_instant_metadata_in_json(instant)).get("extraMetadata") or {}
        for name, told in told_in(said):
            if not name.startswith(prefix):
                continue
            newest = int(told["epoch"])
            if told.get("rewound"):
                for later in [epoch for epoch in times[name] if epoch > newest]:
                    del times[name][later]
            else:
                times[name][newest] += 1
    for name, epochs in times.items():
        for epoch, count in sorted(epochs.items()):
            if count > 1:
                yield f"epoch {epoch} of {name.removeprefix('headrace/')} was committed {count} times"
    yield from behind(newest, decided)
    if place.is_view:
        yield from ahead(newest, decided, last)
        yield from keys_twice(read_rows(url, place, place.keys, None), place.keys, url)


def told_in(metadata: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What writers of ours have said with a commit, by the name of each."""
    for name, text in metadata.items():
        if name == WENT_BACK:
            told = json.loads(text)
            yield told["name"], told
        elif name.startswith("headrace/"):
            yield name, json.loads(text)


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
        # A store that does not answer names the file as well, and a setting can be "not found" too.
        if _NO_TABLE in str(error):
            return None
        raise EndpointUnavailable(f"{url} cannot be read: {str(error).splitlines()[0]}") from error
