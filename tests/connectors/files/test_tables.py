"""Spec, Validate and Apply, and schemas that change."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from headrace.connectors.files.folder import Folder
from headrace.errors import ConfigError, EndpointError, EndpointUnavailable
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.messages import Apply, Spec, Validate, ValidateBinding
from headrace.testing import MemoryLog, Runtime, materialization_of
from tests.connectors.files.driving import CLIENT, applied, apply, open_again, planned, things, write
from tests.connectors.files_endpoint import FilesEndpointUnderTest

GOLDEN = Path(__file__).parent / "golden"


def test_what_spec_says() -> None:
    said = json.dumps(asdict(CLIENT.spec(Spec())), indent=2)
    assert said + "\n" == (GOLDEN / "spec.json").read_text()


def test_what_validate_says(folder: FilesEndpointUnderTest) -> None:
    log = MemoryLog()
    write(applied(folder.config, things(kept={"type": "string"}, other={"type": "string"})), log, [1])
    changed = things(
        kept={"type": "string"}, other={"type": "integer"}, new={"type": "number"}, nested={"type": "object"}
    )
    binding = ValidateBinding(changed, {"prefix": "things"})
    (answer,) = CLIENT.validate(Validate("view", "files", folder.config, (binding,))).bindings
    said = [f"{name}: {found.kind}: {found.reason}" for name, found in answer.constraints.items()]
    assert "\n".join(said) + "\n" == (GOLDEN / "validate.txt").read_text()
    assert answer.delta_updates


def test_validate_and_a_dry_run_change_nothing(folder: FilesEndpointUnderTest) -> None:
    view = planned(folder.config, things())
    said = CLIENT.apply(Apply(view, "1", dry_run=True)).action_description
    assert said == "create things: parquet, id integer"
    assert not Path(folder.root).exists()


def test_a_new_column_is_null_in_older_files(any_endpoint: FilesEndpointUnderTest) -> None:
    log, before, after = MemoryLog(), things(), things(new={"type": "string"})
    write(applied(any_endpoint.config, before), log, [1])
    assert apply(any_endpoint.config, after) == "add column new string to things"
    view = planned(any_endpoint.config, after)
    with Runtime(CLIENT, view, log) as runtime:
        runtime.transact([[{"id": 2, "new": "x"}]], {"n": 2})
    open_again(view, log)
    found = ds.dataset(
        f"{any_endpoint.root}/things",
        schema=any_endpoint.table("things")[-1].schema,
        format="parquet",
        filesystem=any_endpoint.filesystem,
    )
    assert found.to_table().sort_by("id").to_pylist() == [{"id": 1, "new": None}, {"id": 2, "new": "x"}]


def test_a_changed_type_is_refused_while_there_is_data(folder: FilesEndpointUnderTest) -> None:
    text, number = things(x={"type": "string"}), things(x={"type": "integer"})
    apply(folder.config, text)
    assert apply(folder.config, number) == "change column x of things, which has no rows, to integer"
    write(planned(folder.config, number), MemoryLog(), [1])
    with pytest.raises(ConfigError, match="column 'x' is integer in the files that are there"):
        planned(folder.config, text)
    unasked = Materialization(  # Validate was never asked, or files have come since
        "view",
        "files",
        folder.config,
        (Binding(text, {"prefix": "things"}, ("things",), (text.field("x"),), None, delta_updates=True),),
    )
    with pytest.raises(EndpointError, match="column 'x' is integer in the files that are there"):
        CLIENT.apply(Apply(unasked, "2"))
    with pytest.raises(EndpointError, match="apply the materialization first"):
        open_again(unasked, MemoryLog())


def test_a_changed_format_is_refused_while_there_is_data(folder: FilesEndpointUnderTest) -> None:
    write(applied(folder.config, things()), MemoryLog(), [1])
    with pytest.raises(ConfigError, match="the files at 'things' are parquet and the format is jsonl"):
        planned(folder.config, things(), format="jsonl")


def test_a_full_view_is_refused(folder: FilesEndpointUnderTest) -> None:
    view = Materialization(
        "view", "files", folder.config, (Binding(things(), {"prefix": "things"}, ("things",)),)
    )
    with pytest.raises(EndpointError, match="files take delta updates only"):
        CLIENT.apply(Apply(view, "1"))


def test_two_who_apply_at_once_are_told(
    folder: FilesEndpointUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, create = planned(folder.config, things()), Folder.create

    def create_second(self: Folder, path: str, data: bytes) -> bool:
        if "table-" in path:
            create(self, path, data)
        return create(self, path, data)

    monkeypatch.setattr(Folder, "create", create_second)
    with pytest.raises(EndpointUnavailable, match="somebody else has just changed the table"):
        CLIENT.apply(Apply(view, "1"))


def test_a_store_that_overwrites_is_refused(
    folder: FilesEndpointUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = planned(folder.config, things())
    monkeypatch.setattr(Folder, "create", lambda *_: True)
    with pytest.raises(EndpointError, match="If-None-Match"):
        CLIENT.apply(Apply(view, "1"))


@pytest.mark.parametrize(
    ("endpoint", "resources", "sentence"),
    [
        ({}, [{"prefix": "t"}], "endpoint: key 'url': Field required"),
        ({"url": "http://x/y"}, [{"prefix": "t"}], "there is no store of kind 'http'"),
        ({"url": "/x", "options": {"key": "hunter2"}}, [{"prefix": "t"}], "a folder has no 'options'"),
        ({"url": "s3://x", "options": {"pasword": "hunter2"}}, [{"prefix": "t"}], "pasword"),
        ({"url": "{folder}"}, [{}], "resource: key 'prefix': Field required"),
        ({"url": "{folder}"}, [{"prefix": "/t"}], "write it as names between single slashes"),
        ({"url": "{folder}"}, [{"prefix": "a/../b"}], "write it as names between single slashes"),
        ({"url": "{folder}"}, [{"prefix": "a/_b"}], "readers skip such names"),
        ({"url": "{folder}"}, [{"prefix": "t", "format": "csv"}], "resource: key 'format'"),
        (
            {"url": "{folder}"},
            [{"prefix": "t", "format": "jsonl", "compression": "snappy"}],
            "'compression' of jsonl is gzip, zstd or none",
        ),
        ({"url": "{folder}"}, [{"prefix": "t"}, {"prefix": "t/data"}], "of two bindings overlap"),
    ],
)
def test_wrong_configuration_is_one_sentence(
    tmp_path: Path, endpoint: dict[str, Any], resources: list[dict[str, str]], sentence: str
) -> None:
    if "url" in endpoint:
        endpoint = {**endpoint, "url": endpoint["url"].format(folder=tmp_path)}
    bindings = [ValidateBinding(things(), resource) for resource in resources]
    with pytest.raises(ConfigError) as error:
        materialization_of(CLIENT, "view", "files", endpoint, bindings)
    assert sentence in str(error.value)
    assert "hunter2" not in str(error.value)
    assert "\n" not in str(error.value)
