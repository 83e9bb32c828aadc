"""The recovery log, in a folder and on a real S3 server: one decides, and everybody else knows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from devtools.s3_server import S3Server
from headrace.errors import ConfigError, EndpointUnavailable, Fenced, ProtocolError
from headrace.model.checkpoints import to_json
from headrace.objects import ObjectStore
from headrace.pipeline import recovery_log
from headrace.pipeline.recovery_log import Decision, Recovered, RecoveryLog, last_rows, with_evidence

PREFIX = "orders/log"


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.processes)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    if request.param == "folder":
        return (tmp_path / "state").as_uri(), {}
    server: S3Server = request.getfixturevalue("s3_server")
    bucket: str = request.getfixturevalue("s3_bucket")
    return f"s3://{bucket}/state", server.obstore_options()


@pytest.fixture
def store(place: tuple[str, dict[str, Any]]) -> ObjectStore:
    return ObjectStore(*place)


@pytest.fixture
def folder_store(tmp_path: Path) -> ObjectStore:
    return ObjectStore((tmp_path / "state").as_uri())


def decision(epoch: int, **changes: Any) -> Decision:
    given: dict[str, Any] = {"runtime_checkpoint": {"offsets": epoch}, **changes}
    return Decision(epoch, **given)


def opened(store: ObjectStore) -> RecoveryLog:
    log = RecoveryLog(store, PREFIX)
    log.open()
    return log


def records(store: ObjectStore) -> list[str]:
    return store.list(PREFIX, "list them")


CREATE = ObjectStore.create


def lose_answer(self: ObjectStore, path: str, data: bytes, what: str) -> None:
    CREATE(self, path, data, what)
    raise EndpointUnavailable("the answer was lost")


def refuse(*_: object) -> None:
    raise EndpointUnavailable("the store is away")


def test_what_was_decided_is_there_for_whoever_comes_next(store: ObjectStore) -> None:
    log = RecoveryLog(store, PREFIX)
    assert log.read() == Recovered(0, None)
    assert log.open() == Recovered(1, None)
    assert log.read().runtime_checkpoint == {}
    log.decide(decision(0))
    last = decision(
        1,
        runtime_checkpoint={"offsets": {"a": 2**80}, "text": "\u2603"},
        handles={"view": {"shards": [{"range": "00000000-ffffffff", "checkpoint": {"a": None}}]}, "dead": {}},
        summary={"read": 3, "good": 2, "dead": 1},
    )
    log.decide(last)
    assert RecoveryLog(store, PREFIX).read() == Recovered(1, last)
    assert RecoveryLog(store, PREFIX).open() == Recovered(2, last)
    assert RecoveryLog(store, PREFIX).open() == Recovered(3, last)


def test_a_log_says_whether_its_last_decision_is_settled(store: ObjectStore) -> None:
    log = opened(store)
    log.settle()
    assert len(records(store)) == 1, "there is nothing to settle"
    log.decide(decision(0))
    assert not RecoveryLog(store, PREFIX).read().is_settled
    log.settle()
    log.settle()
    assert RecoveryLog(store, PREFIX).read().is_settled
    assert len(records(store)) == 3
    successor = RecoveryLog(store, PREFIX)
    assert successor.open().is_settled
    assert RecoveryLog(store, PREFIX).open().is_settled
    with pytest.raises(Fenced):
        successor.decide(decision(1))
    last = opened(store)
    last.decide(decision(1))
    assert not RecoveryLog(store, PREFIX).open().is_settled


def test_logs_are_apart(folder_store: ObjectStore) -> None:
    opened(folder_store).decide(decision(0))
    assert RecoveryLog(folder_store, "orders/logs").open() == Recovered(1, None)


def test_whoever_opens_the_log_fences_off_the_others(store: ObjectStore) -> None:
    zombie, other = opened(store), opened(store)
    with pytest.raises(Fenced, match=r"was taken over by .*: only one coordinator may run"):
        zombie.decide(decision(0))
    other.decide(decision(0))
    with pytest.raises(Fenced) as raised:
        zombie.decide(decision(1))
    assert raised.value.fence == 1
    assert raised.value.taken_by
    assert RecoveryLog(store, PREFIX).read().decision is not None
    assert len(records(store)) == 3


def test_nobody_decides_without_having_opened(folder_store: ObjectStore) -> None:
    with pytest.raises(ProtocolError, match="before the recovery log was opened"):
        RecoveryLog(folder_store, PREFIX).decide(decision(0))
    assert records(folder_store) == []


def test_a_decision_whose_answer_was_lost_is_made_once(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(store)
    it = decision(0)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "create", lose_answer)
        with pytest.raises(EndpointUnavailable):
            log.decide(it)
    log.decide(it)
    log.decide(decision(1))
    assert len(records(store)) == 3


def test_a_decision_that_failed_can_be_made_later(
    folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(folder_store)
    log.decide(decision(0))
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "create", refuse)
        with pytest.raises(EndpointUnavailable):
            log.decide(decision(1))
    assert RecoveryLog(folder_store, PREFIX).read().runtime_checkpoint == {"offsets": 0}
    log.decide(decision(1))
    assert RecoveryLog(folder_store, PREFIX).read().runtime_checkpoint == {"offsets": 1}


def test_a_decision_that_a_successor_saw_stands_though_its_maker_is_fenced_off(
    folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, create = opened(folder_store), ObjectStore.create
    seen: list[Recovered] = []

    def be_overtaken(self: ObjectStore, path: str, data: bytes, what: str) -> None:
        create(self, path, data, what)
        if not seen:
            seen.append(Recovered(0, None))  # the successor's own record passes here as well
            seen[0] = RecoveryLog(folder_store, PREFIX).open()

    monkeypatch.setattr(ObjectStore, "create", be_overtaken)
    it = decision(0)
    with pytest.raises(Fenced):
        log.decide(it)
    assert seen == [Recovered(2, it)]


@pytest.mark.parametrize("torn", [b"", b"\0" * 300, b'{"version": 1, "kind": "deci', b'{"a": 1}\0\0'])
def test_a_record_that_was_cut_off_was_never_made(
    tmp_path: Path, folder_store: ObjectStore, torn: bytes
) -> None:
    log = opened(folder_store)
    log.decide(decision(0))
    (tmp_path / "state" / PREFIX / f"{3:020}.json").write_bytes(torn)
    assert RecoveryLog(folder_store, PREFIX).read().runtime_checkpoint == {"offsets": 0}
    successor = RecoveryLog(folder_store, PREFIX)
    assert successor.open().fence == 2
    successor.decide(decision(1))
    assert RecoveryLog(folder_store, PREFIX).read().runtime_checkpoint == {"offsets": 1}


def test_old_records_are_removed_and_the_last_decision_never(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_log, "_KEPT", 3)
    monkeypatch.setattr(recovery_log, "_REMOVED_EVERY", 2)
    log = opened(store)
    for epoch in range(10):
        log.decide(decision(epoch))
    assert len(records(store)) == 4
    for _ in range(10):  # a machine that crashes again and again
        log = opened(store)
    assert log.fence == 11
    log.decide(decision(10))
    assert RecoveryLog(store, PREFIX).read().runtime_checkpoint == {"offsets": 10}


def test_a_zombie_cannot_decide_in_the_place_of_a_removed_record(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_log, "_KEPT", 3)
    monkeypatch.setattr(recovery_log, "_REMOVED_EVERY", 1)
    zombie, log = opened(store), opened(store)
    for epoch in range(10):
        log.decide(decision(epoch))
    with pytest.raises(Fenced):
        zombie.decide(decision(0))
    assert RecoveryLog(store, PREFIX).open().runtime_checkpoint == {"offsets": 9}


def test_a_log_that_lost_its_last_decision_is_refused(folder_store: ObjectStore) -> None:
    log = opened(folder_store)
    log.decide(decision(0))
    opened(folder_store)
    folder_store.remove(records(folder_store)[1], "break it")
    with pytest.raises(ConfigError, match="has lost its record 2"):
        RecoveryLog(folder_store, PREFIX).open()


@pytest.mark.parametrize("place", [1, 2])
def test_a_record_that_is_damaged_is_refused(folder_store: ObjectStore, place: int) -> None:
    """It was told of to somebody, so it must not be passed over."""
    log = opened(folder_store)
    log.decide(decision(0))
    path = records(folder_store)[place - 1]
    data = folder_store.get(path, "get it").replace(b'"fence":1', b'"fence":3')
    folder_store.put(path, data, "damage it")
    if place == 1:
        assert RecoveryLog(folder_store, PREFIX).open().fence == 2, "only the last ones are looked at"
    else:
        with pytest.raises(ConfigError, match="record 2 is damaged"):
            RecoveryLog(folder_store, PREFIX).open()


def test_other_objects_are_left_alone(folder_store: ObjectStore) -> None:
    log = opened(folder_store)
    inner = RecoveryLog(folder_store, f"{PREFIX}/eu")
    inner.open()
    folder_store.put(f"{PREFIX}/README.txt", b"", "put it")
    log.decide(decision(0))
    assert RecoveryLog(folder_store, PREFIX).open().runtime_checkpoint == {"offsets": 0}
    assert inner.read() == Recovered(1, None)


def test_who_could_not_open_it_again_decides_and_settles_nothing(
    folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = opened(folder_store), opened(folder_store)
    after.decide(decision(0))
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "create", refuse)
        with pytest.raises(EndpointUnavailable):
            before.open()
    with pytest.raises(ProtocolError):
        before.decide(decision(0))
    with pytest.raises(ProtocolError):
        before.settle()


def test_a_settlement_whose_answer_was_lost_is_no_one_elses(
    folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(folder_store)
    for epoch in (0, 1):
        log.decide(decision(epoch))
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "create", lose_answer)
            with pytest.raises(EndpointUnavailable):
                log.settle()
        if epoch:
            log.settle()
    assert RecoveryLog(folder_store, PREFIX).read().is_settled
    assert len(records(folder_store)) == 5
    log.decide(decision(2))
    assert RecoveryLog(folder_store, PREFIX).read().runtime_checkpoint == {"offsets": 2}


def test_a_decision_stands_when_old_records_cannot_be_removed(
    folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_log, "_KEPT", 0)
    monkeypatch.setattr(recovery_log, "_REMOVED_EVERY", 1)
    monkeypatch.setattr(ObjectStore, "remove", refuse)
    log = opened(folder_store)
    log.decide(decision(0))
    log.decide(decision(1))
    assert len(records(folder_store)) == 3


def test_the_last_decision_is_synced_by_who_goes_by_it(
    folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(folder_store).decide(decision(0))
    synced: list[str] = []
    monkeypatch.setattr("headrace.objects._sync", lambda path: synced.append(path.name))
    RecoveryLog(folder_store, PREFIX).open()
    assert f"{2:020}.json" in synced


def test_a_log_of_a_later_version_is_refused(folder_store: ObjectStore) -> None:
    opened(folder_store)
    path = records(folder_store)[0]
    raw = json.loads(folder_store.get(path, "get it"))
    folder_store.put(path, json.dumps(raw | {"version": 3}).encode() + b"\n", "change it")
    with pytest.raises(ConfigError, match="another version"):
        RecoveryLog(folder_store, PREFIX).open()


def test_a_folder_that_shows_nothing_of_a_log_that_moves_on(
    folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files came and went while it was listed."""
    monkeypatch.setattr(recovery_log, "_KEPT", 0)
    monkeypatch.setattr(recovery_log, "_REMOVED_EVERY", 1)
    opened(folder_store).decide(decision(0))
    opened(folder_store)
    reader, others = RecoveryLog(folder_store, PREFIX), [RecoveryLog(folder_store, PREFIX)]
    last, indexes = reader._last, reader._indexes

    def last_before_it_moves_on() -> Any:
        found = last()
        while others:
            other = others.pop()
            other.open()
            other.decide(decision(1))
        return found

    monkeypatch.setattr(reader, "_last", last_before_it_moves_on)
    monkeypatch.setattr(reader, "_indexes", lambda after=0: [] if after == 3 else indexes(after))
    recovered = reader.open()
    assert recovered.decision is not None
    assert recovered.decision.epoch == 1


RACER = """
import json, sys
from headrace.errors import Fenced
from headrace.objects import ObjectStore
from headrace.pipeline import recovery_log
from headrace.pipeline.recovery_log import Decision, RecoveryLog

recovery_log._KEPT, recovery_log._REMOVED_EVERY = 8, 1
url, options = json.loads(sys.argv[1])
log = RecoveryLog(ObjectStore(url, options), "orders/log")
for _ in range(8):
    recovered = log.open()
    epoch = recovered.decision.epoch + 1 if recovered.decision else 0
    try:
        for epoch in range(epoch, epoch + 3):
            log.decide(Decision(epoch, {"by": sys.argv[2]}))
            print(epoch, flush=True)
    except Fenced:
        pass
"""


@pytest.mark.processes
def test_of_processes_that_race_only_one_decides_an_epoch(place: tuple[str, dict[str, Any]]) -> None:
    """With records removed all the time, so that there are holes to fall into."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, json.dumps(place), str(number)], stdout=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    decided = [int(epoch) for racer in racers for epoch in racer.communicate()[0].split()]
    assert [racer.returncode for racer in racers] == [0] * 4
    assert len(decided) == len(set(decided)), "an epoch was decided twice"
    last = RecoveryLog(ObjectStore(*place), PREFIX).read().decision
    assert last is not None
    assert last.epoch >= max(decided)


def test_an_epoch_that_was_begun_runs_as_it_began(store: ObjectStore) -> None:
    """However often it crashes, and whatever the file says by then; the epoch after it runs as it says."""
    first = RecoveryLog(store, PREFIX)
    assert first.open({"shards": 4}).plan == {"shards": 4}
    second = RecoveryLog(store, PREFIX)
    assert second.open({"shards": 1}).plan == {"shards": 4}
    second.decide(decision(0), {"shards": 1})
    assert second.plan == {"shards": 1}
    third = RecoveryLog(store, PREFIX)
    assert third.open({"shards": 7}).plan == {"shards": 1}
    third.decide(decision(1))
    assert third.read().plan == {"shards": 1}


def test_one_who_was_replaced_can_find_out(store: ObjectStore) -> None:
    log = opened(store)
    log.verify()
    log.decide(decision(0))
    log.settle()
    log.verify()
    opened(store)
    with pytest.raises(Fenced):
        log.verify()


def test_the_last_decisions_are_told_with_whether_they_are_committed(store: ObjectStore) -> None:
    log = opened(store)
    assert log.recent(10) == []
    for epoch in range(3):
        log.decide(decision(epoch, handles={"dead": {"rows": 1}}))
    opened(store)  # says nothing of it
    assert [(past.decision.epoch, past.is_committed) for past in log.recent(2)] == [(2, False), (1, True)]
    last = opened(store)
    last.settle()
    assert [(past.decision.epoch, past.is_committed) for past in log.recent(10)] == [
        (2, True),
        (1, True),
        (0, True),
    ]
    last.decide(decision(3, handles={"view": {}}))
    first = log.recent(1)[0]
    assert (first.is_committed, first.fence) == (True, 3), "nothing of it is left to commit"


def test_the_last_rows_of_a_sink_are_known_however_long_ago(
    folder_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_log, "_KEPT", 2)
    log, before = opened(folder_store), None
    for epoch in range(30):
        handles: dict[str, Any] = {"often": {"rows": 2, "file": epoch}, "connector": {}}
        if epoch in (3, 5):
            handles["seldom"] = {"rows": 10, "file": epoch}
        before = with_evidence(decision(epoch, handles=handles), before)
        log.decide(before)
    log.settle()
    assert len(records(folder_store)) < 10
    found = RecoveryLog(folder_store, PREFIX).read().decision
    assert last_rows(found) == {
        "often": (29, {"rows": 2, "file": 29}),
        "seldom": (5, {"rows": 10, "file": 5}),
    }
    assert found is not None
    assert {name: (one["since"], one["rows"]) for name, one in found.evidence.items()} == {
        "often": (0, 60),
        "seldom": (3, 20),
    }


def test_a_log_of_version_1_goes_on(folder_store: ObjectStore) -> None:
    """Its decisions have no evidence; the next one begins with it."""
    log = opened(folder_store)
    log.decide(decision(0, handles={"sink": {"rows": 3}}))
    for path in records(folder_store):
        raw = json.loads(folder_store.get(path, "read it"))
        del raw["crc32"]
        if raw["decision"]:
            del raw["decision"]["evidence"]
        body = to_json({**raw, "version": 1}).encode()
        folder_store.put(path, body[:-1] + b',"crc32":"%08x"}\n' % crc32(body), "write it as it was")
    log = RecoveryLog(folder_store, PREFIX)
    recovered = log.open()
    assert recovered.decision is not None
    assert last_rows(recovered.decision) == {}
    log.decide(with_evidence(decision(1, handles={"sink": {"rows": 4}}), recovered.decision))
    found = log.read().decision
    assert found is not None
    assert found.evidence == {"sink": {"epoch": 1, "since": 1, "rows": 4}}
