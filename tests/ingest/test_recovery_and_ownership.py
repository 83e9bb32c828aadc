"""What becomes of segments, of lost disks, and of two servers that want the same log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headrace.errors import (
    ConfigError,
    EndpointUnavailable,
    Fenced,
    ServerUnavailable,
)
from headrace.ingest.data_folder import DataFolder
from headrace.ingest.engine import Engine
from headrace.ingest.engine_settings import LogLimits
from headrace.model.lsn import first_lsn_of
from headrace.model.tiers import Tier
from headrace.wal.segments import segment_files
from tests.ingest.support import (
    PATIENT,
    FakeIceberg,
    LocalSession,
    Store,
    batch,
    copy_image,
    running_engine,
    settings_for,
    write_all,
)
from tests.waiting import DEADLINE_SECONDS, wait_until

MEMORY, LOCAL_DISK, OBJECT_STORAGE, COMMITTED = (tier.name for tier in Tier)


# Removal.


def test_segments_are_removed_after_they_are_committed_and_not_before(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    store = Store(tmp_path / "objects")
    # Of this collection only, so that rounds go on, and with them the removal of what is committed.
    iceberg.problems["orders"] = EndpointUnavailable("the table is locked")
    # No segment is sealed by itself: one that contains only a new collection could be removed at once.
    with running_engine(
        tmp_path / "data", store=store, stuck=PATIENT, log=LogLimits(segment_seconds=3600)
    ) as engine:
        for number in range(20):
            write_all(engine, number, level=Tier.LOCAL_DISK)
            engine.flush(Tier.OBJECT_STORAGE, DEADLINE_SECONDS)
        write_all(engine, 1, collection="others", level=Tier.LOCAL_DISK)
        engine.flush(Tier.OBJECT_STORAGE, DEADLINE_SECONDS)
        wait_until(lambda: engine.watermarks("others")[COMMITTED] > 20)
        rounds = len(iceberg.jobs)
        wait_until(lambda: len(iceberg.jobs) > rounds + 2, "more rounds")
        assert store.numbers()[0] == 1
        assert len(store.numbers()) > 20
        assert store.removed == []
        del iceberg.problems["orders"]
        engine.flush(Tier.COMMITTED, DEADLINE_SECONDS)
        wait_until(lambda: len(store.numbers()) < 10)
        wait_until(lambda: segment_files(tmp_path / "data/wal")[0].name == _first_name(store))
    assert iceberg.lsns["orders"] == list(range(1, 21))


def _first_name(store: Store) -> str:
    return f"{store.numbers()[0]:020}.wal"


def test_the_state_survives_the_removal_of_segments(tmp_path: Path, iceberg: FakeIceberg) -> None:
    store = Store(tmp_path / "objects")
    with running_engine(tmp_path / "data", store=store) as engine:
        with LocalSession(engine, options={"producer": "till", "first_seq": 7}) as session:
            session.write(1, seq=7)
        wait_until(lambda: _write_and_look(engine, store) > 5)
        lost = engine.lost()
    for data in (tmp_path / "data", tmp_path / "new"):
        with running_engine(data, store=store) as engine:
            assert engine.lost()[: len(lost)] == lost
            assert engine.collections.names() == ["orders", "others"]
            with LocalSession(engine, options={"producer": "till"}) as session:
                assert session.greeting["last_seq"] == 7
                assert session.greeting["watermarks"][COMMITTED] > 1
                session.send(batch(1), seq=7)
                wait_until(lambda: any("assigned" in message for message in session.messages))
    assert iceberg.lsns["orders"] == [1]


def _write_and_look(engine: Engine, store: Store) -> int:
    write_all(engine, *range(3), collection="others", level=Tier.COMMITTED)
    return len(store.removed)


def test_objects_that_cannot_be_removed_are_removed_later_and_in_order(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    """A hole among the objects would look like a lost segment to a server that lost its disk."""
    store = Store(tmp_path / "objects")
    store.removing_fails = True
    with running_engine(tmp_path / "data", store=store) as engine:
        for number in range(12):
            write_all(engine, number, level=Tier.COMMITTED)
        wait_until(lambda: segment_files(tmp_path / "data/wal")[0].name > _first_name(store))
    # The next process knows of them too, though their files are gone.
    store.removing_fails = False
    with running_engine(tmp_path / "data", store=store) as engine:
        for number in range(12):
            write_all(engine, number, level=Tier.COMMITTED)
            numbers = store.numbers()
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
        wait_until(lambda: segment_files(tmp_path / "data/wal")[0].name == _first_name(store))
    assert store.removed == sorted(store.removed)
    with running_engine(tmp_path / "new", store=store):
        pass


# A disk that is gone, and folders that are not what they seem.


def test_everything_in_object_storage_comes_back_when_the_disk_is_lost(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    iceberg.problem = EndpointUnavailable("nothing is committed before the disk is lost")
    store = Store(tmp_path / "objects")
    with (
        running_engine(tmp_path / "data", store=store) as engine,
        LocalSession(engine, options={"producer": "till"}) as session,
    ):
        kept = [session.write(number, seq=number) for number in range(1, 6)]
        session.await_level(kept[-1], OBJECT_STORAGE)
        store.broken = "nothing more gets out"
        lost = session.write(6, seq=6)
        session.await_level(lost, LOCAL_DISK)
    shutil.rmtree(tmp_path / "data")
    store.broken, iceberg.problem = None, None
    with running_engine(tmp_path / "data", store=store) as engine:
        assert json.loads((tmp_path / "data/identity.json").read_text())["epoch"] == 1
        assert engine.tier_of(lost) == "LOST"
        assert engine.lost() == [(lost, first_lsn_of(1) - 1)]
        with LocalSession(engine, options={"producer": "till", "resume_after": 0}) as session:
            assert session.greeting["last_seq"] == 5
            session.send(batch(5), seq=5).await_level(kept[-1], MEMORY)
            again = session.write(6, seq=6)
            assert again == first_lsn_of(1)
            session.await_level(again, COMMITTED)
    assert iceberg.lsns == {"orders": [*kept, again]}


def test_a_disk_that_was_lost_before_anything_got_out_is_told_of(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    store = Store(tmp_path / "objects")
    store.broken = "nothing gets out"
    with running_engine(tmp_path / "data", store=store) as engine:
        [lsn] = write_all(engine, 1, level=Tier.LOCAL_DISK)
    shutil.rmtree(tmp_path / "data")
    store.broken = None
    with running_engine(tmp_path / "data", store=store) as engine:
        assert engine.tier_of(lsn) == "LOST"
        assert write_all(engine, 1) == [first_lsn_of(1)]


def test_a_recovery_that_was_interrupted_begins_again(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "objects")
    iceberg.problem = EndpointUnavailable("so that all segments are kept")
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = [lsn for number in range(3) for lsn in write_all(engine, number, level=Tier.OBJECT_STORAGE)]
    shutil.rmtree(tmp_path / "data/wal")  # the identity stays
    fetch = Store.fetch
    fetched: list[int] = []

    def fail_on_the_way(self: Store, number: int, folder: Path) -> None:
        if fetched:
            raise EndpointUnavailable("the store is down")
        fetched.append(number)
        fetch(self, number, folder)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "fetch", fail_on_the_way)
        with pytest.raises(EndpointUnavailable):
            Engine(settings_for(tmp_path / "data"), store=store)
    assert segment_files(tmp_path / "data/wal")
    with running_engine(tmp_path / "data", store=store) as engine:
        assert all(engine.tier_of(lsn) != "LOST" for lsn in lsns)
        assert write_all(engine, 1) == [first_lsn_of(2)]


def test_a_server_that_ended_before_its_first_record_reuses_no_number(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    store = Store(tmp_path / "objects")
    with running_engine(tmp_path / "data", store=store) as engine:
        write_all(engine, 1, level=Tier.OBJECT_STORAGE)
    shutil.rmtree(tmp_path / "data")
    folder = DataFolder(tmp_path / "data")
    assert folder.open_log(store, lambda _, __: None, lambda _log, _names: {}).identity.term == 1
    folder.close()
    with running_engine(tmp_path / "data", store=store) as engine:
        assert write_all(engine, 1) == [first_lsn_of(1)]


def test_a_folder_is_used_by_one_server_at_a_time(tmp_path: Path, iceberg: FakeIceberg) -> None:
    with running_engine(tmp_path), pytest.raises(ConfigError, match="in use by another server"):
        Engine(settings_for(tmp_path))
    with running_engine(tmp_path):
        pass


def test_an_old_copy_of_a_folder_goes_on_in_a_new_term(tmp_path: Path, iceberg: FakeIceberg) -> None:
    store = Store(tmp_path / "objects")
    with running_engine(tmp_path / "data", store=store) as engine:
        write_all(engine, 1, level=Tier.COMMITTED)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = [write_all(engine, number, level=Tier.COMMITTED) for number in range(3)]
    with running_engine(tmp_path / "copy", store=store) as engine:
        assert [engine.tier_of(lsn) for [lsn] in lsns] == ["COMMITTED"] * 3
        assert write_all(engine, 4, level=Tier.COMMITTED) == [first_lsn_of(1)]
    [aside] = (tmp_path / "copy").glob("wal-put-aside-*/wal")
    assert segment_files(aside)
    assert iceberg.lsns["orders"] == [1, *(lsn for [lsn] in lsns), first_lsn_of(1)]
    with pytest.raises(Fenced, match="another server took over"):
        Engine(settings_for(tmp_path / "data"), store=store)


def test_two_servers_with_images_of_a_folder_cannot_both_put(tmp_path: Path, iceberg: FakeIceberg) -> None:
    """They have the same term and, with the same writes, segments of the same number and size."""
    url = tmp_path / "objects"
    with running_engine(tmp_path / "data", store=Store(url)) as engine:
        write_all(engine, 1, level=Tier.OBJECT_STORAGE)
    copy_image(tmp_path / "data", tmp_path / "copy")
    with (
        running_engine(tmp_path / "data", store=Store(url)) as first,
        running_engine(tmp_path / "copy", store=Store(url)) as second,
        LocalSession(second) as session,
    ):
        wait_until(lambda: second._commits.confirmed.tables)  # as they were before the first server writes
        write_all(first, 2, level=Tier.OBJECT_STORAGE)
        lsn = session.write(2)
        wait_until(lambda: second.fatal)
        assert second.fatal is not None
        assert "copy" in second.fatal
        assert isinstance(second.refusal(), ServerUnavailable)
        assert lsn not in session.lsns(OBJECT_STORAGE)


def test_a_folder_of_another_log_is_refused(tmp_path: Path, iceberg: FakeIceberg) -> None:
    for name in ("one", "two"):
        with running_engine(tmp_path / name, store=Store(tmp_path / f"objects of {name}")) as engine:
            write_all(engine, 1, collection=name, level=Tier.COMMITTED)
    with pytest.raises(ConfigError, match="name the store that it had, or start with a new data folder"):
        Engine(settings_for(tmp_path / "one"), store=Store(tmp_path / "objects of two"))


def test_a_folder_whose_store_is_new_goes_on_and_claims_its_term_there(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    with running_engine(tmp_path / "data", store=Store(tmp_path / "old")) as engine:
        write_all(engine, 1, level=Tier.COMMITTED)
    new = Store(tmp_path / "new")
    with running_engine(tmp_path / "data", store=new) as engine:
        write_all(engine, 1, level=Tier.COMMITTED)
    assert new.claim_term() == 1


def test_segments_without_an_identity_are_kept_out_of_the_way(tmp_path: Path, iceberg: FakeIceberg) -> None:
    with running_engine(tmp_path) as engine:
        write_all(engine, 1, level=Tier.OBJECT_STORAGE)
    (tmp_path / "identity.json").unlink()
    with running_engine(tmp_path) as engine:
        assert engine.collections.names() == ["orders"]
    [aside] = tmp_path.glob("wal-put-aside-*/wal")
    assert segment_files(aside)
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(ConfigError, match=r"identity\.json is damaged"):
        Engine(settings_for(tmp_path))


# Two servers on one store.


def test_a_server_that_was_replaced_never_acknowledges_object_storage_again(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    url = tmp_path / "objects"
    with running_engine(tmp_path / "old", store=Store(url)) as old, LocalSession(old) as session:
        kept = session.write(1)
        session.await_level(kept, OBJECT_STORAGE)
        with running_engine(tmp_path / "new", store=Store(url)) as new:
            late = session.write(2)
            wait_until(lambda: old.fatal)
            assert old.fatal is not None
            assert "another server took over" in old.fatal
            assert late not in session.lsns(OBJECT_STORAGE)
            session.send(batch(3))
            assert isinstance(session.join(), ServerUnavailable)
            assert new.tier_of(late) == "LOST"
            mine = write_all(new, 4, level=Tier.COMMITTED)
    with pytest.raises(Fenced, match="another server took over"):
        Engine(settings_for(tmp_path / "old"), store=Store(url))
    assert iceberg.lsns == {"orders": [kept, *mine]}


def test_a_put_that_the_new_server_saw_is_recovered_and_not_acknowledged_by_the_old(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    """The new server claims and lists between the old one's put and its look for other servers."""
    store, engines = Store(tmp_path / "objects"), []
    with running_engine(tmp_path / "old", store=store) as old, LocalSession(old) as session:
        write_all(old, 1, level=Tier.COMMITTED)

        def take_over() -> None:
            store.after_put = lambda: None
            engines.append(Engine(settings_for(tmp_path / "new"), store=Store(tmp_path / "objects")))

        store.after_put = take_over
        lsn = session.write(2)
        wait_until(lambda: old.fatal)
        assert lsn not in session.lsns(OBJECT_STORAGE)
        [new] = engines
        new.start()
        assert new.tier_of(lsn) != "LOST"
        new.flush(Tier.COMMITTED, DEADLINE_SECONDS)
        new.close()
    assert iceberg.lsns["orders"] == [1, lsn]


def test_a_put_that_the_new_server_did_not_see_is_overwritten_and_was_never_acknowledged(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    """The old server's put is on its way while the new one claims and lists."""
    store = Store(tmp_path / "objects")
    with running_engine(tmp_path / "old", store=store) as old, LocalSession(old) as session:
        write_all(old, 1, level=Tier.COMMITTED)
        store.hold()
        lsn = session.write(2)
        assert store.holding.wait(DEADLINE_SECONDS)
        with running_engine(tmp_path / "new", store=Store(tmp_path / "objects")) as new:
            assert new.tier_of(lsn) == "LOST"
            store.let_go()
            wait_until(lambda: old.fatal)
            assert lsn not in session.lsns(OBJECT_STORAGE)
            mine = write_all(new, 3, level=Tier.COMMITTED)
            assert new.fatal is None
    assert iceberg.lsns["orders"] == [1, *mine]
    with running_engine(tmp_path / "third", store=Store(tmp_path / "objects")) as third:
        assert third.tier_of(lsn) == "LOST"
        assert third.tier_of(mine[0]) != "LOST"
