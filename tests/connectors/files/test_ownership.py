"""Whose a prefix is, beside what the conformance suite asks of every connector."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.files.folder import Folder
from headrace.errors import EndpointError, EndpointUnavailable
from headrace.model.materializations import Materialization
from headrace.model.ownership import Mode, Owner, Target
from headrace.protocol.messages import Apply, Validate, ValidateBinding
from headrace.testing import MemoryLog, materialization_of
from tests.connectors.files.driving import CLIENT, open_again, things, write
from tests.connectors.files_endpoint import FilesEndpointUnderTest


def named(folder: FilesEndpointUnderTest, name: str) -> Materialization:
    binding = ValidateBinding(things(), {"prefix": "things"})
    return materialization_of(CLIENT, name, "files", folder.config, [binding])


def claim(folder: FilesEndpointUnderTest, name: str = "view", **asked: Any) -> str:
    return CLIENT.apply(Apply(named(folder, name), "1", lineage="first", **asked)).action_description


def target(folder: FilesEndpointUnderTest) -> Target | None:
    binding = ValidateBinding(things(), {"prefix": "things"})
    return CLIENT.validate(Validate("view", "files", folder.config, (binding,))).bindings[0].target


def owned_by(name: str) -> Owner:
    return Owner(name, "first", ("id",), Mode.APPEND)


def about(folder: FilesEndpointUnderTest) -> Path:
    return Path(folder.root) / "things/_headrace"


def test_what_apply_says_and_writes(folder: FilesEndpointUnderTest) -> None:
    CLIENT.apply(Apply(named(folder, "view"), "1"))
    (unmarked,) = about(folder).iterdir()
    assert json.loads(unmarked.read_text()) == {"format": "parquet", "columns": {"id": "integer"}}
    assert claim(folder) == "let prefix things say that materialization 'view' writes it"
    marked = json.loads((about(folder) / "table-000002.json").read_text())
    owner = {"materialization": "view", "lineage": "first", "key": ["id"], "mode": "append"}
    assert marked == {"format": "parquet", "columns": {"id": "integer"}, "owner": owner}
    with pytest.raises(EndpointError) as refused:
        claim(folder, "other")
    assert str(refused.value) == (
        "prefix 'things' is written by materialization 'view': give the binding another, or take this one "
        "over with --adopt once nobody else writes it"
    )
    assert claim(folder, "other", adopts=True) == (
        "let prefix things say that materialization 'other' writes it, and no longer 'view'"
    )


def test_of_two_who_claim_at_once_one_is_told(
    folder: FilesEndpointUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    CLIENT.apply(Apply(named(folder, "view"), "1"))
    create = Folder.create

    def come_second(self: Folder, path: str, data: bytes) -> bool:
        if "table-" in path:
            monkeypatch.undo()
            claim(folder, "other")
        return create(self, path, data)

    monkeypatch.setattr(Folder, "create", come_second)
    with pytest.raises(EndpointUnavailable, match="somebody else has just changed the table"):
        claim(folder)
    with pytest.raises(EndpointError, match="is written by materialization 'other'"):
        claim(folder)
    assert target(folder) == Target(True, False, owned_by("other"))


def test_a_stream_whose_prefix_was_taken_over_is_refused(folder: FilesEndpointUnderTest) -> None:
    claim(folder)
    write(named(folder, "view"), MemoryLog(), [1])
    claim(folder, "other", adopts=True)
    assert target(folder) == Target(True, True, owned_by("other"))
    with pytest.raises(EndpointError, match="is written by materialization 'other'"):
        open_again(named(folder, "view"), MemoryLog())


def test_rows_are_found_without_a_description(folder: FilesEndpointUnderTest) -> None:
    claim(folder)
    log = MemoryLog()
    write(named(folder, "view"), log, [1])
    open_again(named(folder, "view"), log)
    shutil.rmtree(about(folder))
    assert target(folder) == Target(exists=True, has_rows=True)


def test_a_mark_that_is_not_ours_is_refused(folder: FilesEndpointUnderTest) -> None:
    claim(folder)
    (path,) = about(folder).iterdir()
    path.write_text(path.read_text().replace('"append"', '"prepend"'))
    with pytest.raises(EndpointError, match="is not what the connector wrote"):
        target(folder)
