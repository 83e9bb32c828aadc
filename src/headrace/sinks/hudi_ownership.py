"""Whose a Hudi table is: a note beside its timeline.

    table/.hoodie/headrace/owner/00000000000000000001.5f0c....json   {"materialization": "sales", ...}

The last one counts. Hadoop's stores have no way to let only one of two create a file. So each has a name that
nobody else uses, and whoever finds another's beside his own, or after it, takes his own back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import uuid4

from headrace.errors import EndpointError
from headrace.model.ownership import Owner
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.hudi_tables import HudiTable
from headrace.sinks.ownership import refuse_other

_FOLDER = "owner"  # writers have a folder as well, with a quoted slash in its name
_NAME = re.compile(r"(\d{20})\.[0-9a-f]{32}\.json")


@dataclass(frozen=True)
class _Mark:
    name: str
    owner: Owner

    @property
    def number(self) -> int:
        return int(self.name[:20])


def read_owner(table: HudiTable) -> Owner | None:
    marks = _marks(table)
    return marks[-1].owner if marks else None


def claim_table(name: str, table: HudiTable, owner: Owner, *, adopts: bool) -> None:
    """Has the table say that it is `owner`'s, in the name of the sink `name`."""
    before = _marks(table)
    if before:
        refuse_other(name, table.path, before[-1].owner, owner, adopts=adopts)
        if before[-1].owner == owner:
            return
    number = before[-1].number + 1 if before else 1
    note = f"{number:020}.{uuid4().hex}.json"
    table.put_note(_FOLDER, note, owner.encode())
    for mark in _marks(table):
        if mark.number >= number:
            try:
                refuse_other(name, table.path, mark.owner, owner)
            except EndpointError:
                table.remove_note(_FOLDER, note)
                raise
    with cleaning_up(f"remove who owned {table.path} before"):
        for mark in before:
            table.remove_note(_FOLDER, mark.name)


def _marks(table: HudiTable) -> list[_Mark]:
    """In their order."""
    while True:
        names = sorted(name for name in table.notes(_FOLDER) if _NAME.fullmatch(name))
        texts = {name: table.read_note(_FOLDER, name) for name in names}
        if None not in texts.values():  # else a later one is there by now
            # A machine that went down may have left an empty one, which was never told of.
            return [_Mark(name, _decode(table, name, text)) for name, text in texts.items() if text]


def _decode(table: HudiTable, name: str, text: str) -> Owner:
    try:
        return Owner.decode(text)
    except ValueError:
        raise EndpointError(
            f"{table.path} does not say whose it is: its note .hoodie/headrace/{_FOLDER}/{name} is {text!r}, "
            "which a later version may have written: remove it once nobody else writes there, or write to "
            "another table"
        ) from None
