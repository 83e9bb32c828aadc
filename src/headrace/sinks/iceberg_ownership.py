"""Whose an Iceberg table is: a property, which a claim changes together with a tag.

A REST catalog compares no properties: of two changes of them that build on one state, the later one wins. It
does compare tags. So each claim moves the tag `headrace-owner` to a new snapshot, in the same change, and of
two claims that build on one state only one takes effect. The tag says nothing else, and may expire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import uuid4

from headrace.errors import EndpointUnavailable
from headrace.model.ownership import Owner
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.iceberg_names import PREFIX
from headrace.sinks.iceberg_tables import ID, TRIES, JavaTable, State
from headrace.sinks.ownership import MARK

TAG = f"{PREFIX}owner"
_TAG_AGE_MS = 24 * 60 * 60 * 1000  # until then it keeps the files that the table has now


def claim_table(
    table: JavaTable,
    owner: Owner,
    owner_in: Callable[[State], Owner | None],
    properties: Callable[[State], Mapping[str, str]],
) -> None:
    """Has the table say that it is `owner`'s.

    `owner_in` returns who owns it in a state, and refuses a state that must not be claimed. `properties` are
    changed with the claim.
    """
    if owner_in(table.state()) == owner:
        return
    staged_as = f"owner-{uuid4().hex}"
    snapshot = table.stage(table.java.newAppend(), {ID: staged_as})  # without rows, and on no branch
    try:
        for _ in range(TRIES):
            state = table.state()
            if owner_in(state) == owner:
                return
            said = {**properties(state), MARK: owner.encode()}
            if table.swap(state, None, said, tags={TAG: snapshot}, tag_age_ms=_TAG_AGE_MS):
                return
        raise EndpointUnavailable(f"{table.name} changes too often to be claimed")
    finally:
        with cleaning_up(f"remove what was staged to claim {table.name}"):
            table.remove_staged(table.state(), [staged_as])  # unless the tag has it
