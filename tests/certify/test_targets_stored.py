"""What is in a folder without being published: told, and not read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.certify.documents import document
from headrace.certify.targets.delta import DeltaTarget
from headrace.certify.targets.files import FilesTarget
from headrace.certify.targets.hudi import HudiTarget
from headrace.certify.targets.parquet import ParquetTarget, _counts
from headrace.certify.targets.steady import _TIMES, steadily
from headrace.certify.targets.stored import Stored
from headrace.certify.targets.target import APPEND, Target
from headrace.errors import ConfigError, EndpointError, EndpointUnavailable

EPOCH = f"{0:020}"


def put(path: Path, number: int) -> None:
    """A file with one document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    row = {**document(number), "seen": f"[{number}]", "_epoch": number, "_more": None}
    pq.write_table(pa.Table.from_pylist([row]), path)


def delta_entry(folder: Path, version: int, *actions: dict[str, object]) -> None:
    entry = folder / f"_delta_log/{version:020}.json"
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_bytes(b"\n".join(map(orjson.dumps, actions)))


@pytest.mark.parametrize(
    ("make", "published", "staged"),
    [
        (ParquetTarget, f"lane-append/epoch-{EPOCH}/a.parquet", f"lane-append/_staged/{EPOCH}-1-0/b.parquet"),
        (FilesTarget, "lane/data/a.parquet", "lane/_staged/b.parquet"),
    ],
)
def test_staged_files(
    make: Callable[[str, dict[str, str]], Target], published: str, staged: str, tmp_path: Path
) -> None:
    target = make(tmp_path.as_uri(), {})
    put(tmp_path / published, 1)
    put(tmp_path / staged, 2)
    assert target.read("lane")[APPEND].documents == [document(1)]
    expected = [] if isinstance(target, FilesTarget) else [staged]  # the connector leaves it for a day
    assert target.left_over("lane") == expected


def test_delta_is_what_its_log_names(tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path.as_uri(), {})
    table = tmp_path / "lane-append"
    for number, name in enumerate(("one two", "gone", "staged"), 1):
        put(table / f"data/{name}.parquet", number)
    (table / "_headrace/writer/staged").mkdir(parents=True)
    (table / "_headrace/writer/staged/attempt.json").write_bytes(b"{}")
    delta_entry(table, 0, {"add": {"path": "data/one%20two.parquet"}}, {"add": {"path": "data/gone.parquet"}})
    delta_entry(table, 1, {"remove": {"path": "data/gone.parquet"}})
    assert target.read("lane")[APPEND].documents == [document(1)]
    assert target.left_over("lane") == [
        "lane-append/_headrace/writer/staged/attempt.json",
        "lane-append/data/staged.parquet",
    ]
    delta_entry(table, 3, {"add": {"path": "data/gone.parquet"}})
    with pytest.raises(EndpointError, match="has no entry 2, and has later ones"):
        target.read("lane")


def test_pending_instants_of_hudi(tmp_path: Path) -> None:
    target = HudiTarget(tmp_path.as_uri(), {})
    timeline = tmp_path / "lane-view/.hoodie/timeline"
    (timeline / "history").mkdir(parents=True)
    for name in ("1_2.commit", "1.commit.requested", "1.inflight", "3.commit.requested", "3.inflight"):
        (timeline / name).touch()
    note = tmp_path / "lane-view/.hoodie/headrace/lane%2Fview/3-12-2"
    note.parent.mkdir(parents=True)
    note.touch()
    assert target.left_over("lane") == [
        "lane-view/.hoodie/timeline/3.commit.requested",
        "lane-view/.hoodie/timeline/3.inflight",
        "lane-view/.hoodie/headrace/lane%2Fview/3-12-2",
    ]


def test_a_manifest_that_was_taken_back_does_not_count() -> None:
    rewinds = [{"generation": 1, "after": 7}]
    names = ("7-000000", "8-000000", "8-000001")
    found = {name: _counts(f"_manifests/{name.zfill(27)}.json", rewinds) for name in names}
    assert found == {"7-000000": True, "8-000000": False, "8-000001": True}


def test_a_copy_of_what_was_not_there_is_nothing(tmp_path: Path) -> None:
    target = ParquetTarget(tmp_path.as_uri(), {})
    target.save("lane")
    put(tmp_path / f"lane-append/epoch-{EPOCH}/a.parquet", 1)
    target.restore("lane")
    assert target.read("lane")[APPEND].documents == []
    assert not (tmp_path / "lane-append").exists(), "a look makes no folder"


def test_a_list_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [["a"], ["a", "c"], ["a", "b", "c"], ["a", "b", "c"]]
    monkeypatch.setattr(Stored, "_list", lambda *_: lists.pop(0))
    assert ParquetTarget(tmp_path.as_uri(), {}).stored("lane", APPEND).paths("") == ["a", "b", "c"]


def test_a_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.certify.targets.steady._PAUSE", 0)
    answers: list[Exception | str] = [FileNotFoundError("gone"), EndpointUnavailable("busy"), "read"]

    def read() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert steadily(read) == "read"
    answers += [ConfigError("wrong")]
    with pytest.raises(ConfigError):
        steadily(read)
    answers += [OSError("still\nwrong")] * _TIMES
    with pytest.raises(EndpointUnavailable, match=r"^it cannot be read: still$"):
        steadily(read)
