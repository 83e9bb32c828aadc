"""Writes that were given up and are sent again are never called committed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headrace.errors import ConfigError, EndpointUnavailable, SchemaError
from headrace.ingest import resends
from headrace.ingest.engine import Engine
from headrace.ingest.low_water import LowWater, read_file
from headrace.ingest.producers import Run
from headrace.ingest.resends import Known, Resends
from headrace.model.tiers import Tier
from headrace.wal.segments import CorruptLog, segment_name
from tests.ingest.support import (
    FakeIceberg,
    LocalSession,
    Store,
    batch,
    running_engine,
    settings_for,
    write_all,
)
from tests.ingest.test_quarantine import OBJECT_STORAGE, settle_with_others
from tests.ingest.test_recovery_by_proof import wait_for_release
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("state_in_every_segment")


def write_as(
    engine: Engine, collection: str, *seqs: int, level: str = "COMMITTED", producer: str = "p"
) -> dict[int, int]:
    """Writes as a producer, others after each so that their LSNs are apart; the LSN of each number."""
    lsns = {}
    with LocalSession(engine, collection, {"producer": producer}) as session:
        for seq in seqs:
            lsns[seq] = session.write(seq, seq=seq)
            session.await_level(lsns[seq], level)
            write_all(engine, 0, collection="good")
    return lsns


def resent(engine: Engine, collection: str, *seqs: int) -> dict[int, int]:
    """What the server answers to numbers that are sent again; raises what the stream ends with."""
    with LocalSession(engine, collection, {"producer": "p"}) as again:
        for seq in seqs:
            again.send(batch(seq), seq=seq)

        def assigned() -> dict[int, int]:
            runs = (run for message in list(again.messages) for run in message.get("assigned", ()))
            return {seq + at: lsn + at if lsn else 0 for seq, lsn, count in runs for at in range(count)}

        wait_until(lambda: set(seqs) <= assigned().keys() or again.error, "answers")
        if again.error is not None:
            raise again.error
        return assigned()


def refusal(engine: Engine, collection: str, seq: int) -> str:
    with pytest.raises(ConfigError) as refused:
        resent(engine, collection, seq)
    return refused.value.message


# A quarantine that is dropped.


def drop(engine: Engine, iceberg: FakeIceberg, *seqs: int) -> dict[int, int]:
    """The writes that were dropped, which are in the side log only."""
    iceberg.hold()
    iceberg.problems["bad"] = SchemaError("no such type")
    lsns = write_as(engine, "bad", *seqs, level=OBJECT_STORAGE)
    iceberg.let_go()
    settle_with_others(engine)
    engine.quarantine_calls.drop("bad")
    iceberg.problems.clear()
    return lsns


def test_what_was_dropped_is_not_called_committed_when_it_is_sent_again(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = drop(engine, iceberg, 1, 2, 3)
        write_all(engine, 2, collection="bad", level=Tier.COMMITTED)
        assert resent(engine, "bad", 1, 2, 3) == lsns
    for _ in range(2):
        with running_engine(tmp_path / "data", store=store) as engine:
            assert resent(engine, "bad", 1, 2, 3) == lsns
            write_all(engine, 2, collection="good", level=Tier.COMMITTED)
    shutil.rmtree(tmp_path / "data")
    with running_engine(tmp_path / "data", store=store) as engine:
        assert resent(engine, "bad", 1, 2, 3) == lsns


def test_what_was_committed_before_and_after_a_drop_is_committed(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        write_as(engine, "bad", 1, 2)
        first = drop(engine, iceberg, 3, 4)
        write_as(engine, "bad", 5, 6)
        second = drop(engine, iceberg, 7)
        last = write_as(engine, "bad", 8, 9)
        dropped = first | second
        expected = {seq: dropped.get(seq, 0) for seq in range(1, 9)} | {9: last[9]}
        assert resent(engine, "bad", *range(1, 10)) == expected
    with running_engine(tmp_path / "data", store=store) as engine:
        wait_until(lambda: len(engine._index.all()) == 1, "a release")
    with running_engine(tmp_path / "data", store=store) as engine:
        assert resent(engine, "bad", *range(1, 10)) == expected


def test_a_client_that_comes_back_hears_which_lsns_were_dropped(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    """It takes what it is not told for committed."""
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = drop(engine, iceberg, 1, 2, 3)
        write_as(engine, "bad", 4)
        with LocalSession(engine, "bad", {"producer": "p", "resume_after": lsns[1]}) as again:
            assert [[seq, lsns[seq], 1] for seq in (2, 3)] == again.greeting["assigned"][:2]
            first, last = again.greeting["lost"][0]
            assert first <= lsns[2] < lsns[3] <= last


def test_writes_that_are_dropped_out_of_memory_and_die_with_the_process_may_be_written_anew(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    mark = Resends({"p": (Run(1, 10, 5), Run(7, 30, 1))}, {"q": 2})
    assert mark.without([(12, 20), (25, 40)]) == Resends({"p": (Run(1, 10, 2),)}, {"p": 7, "q": 2})
    assert mark.without([(1, 9), (16, 29), (31, 40)]) == mark


# Rows of a table, and files of a side log, that are missing.


def lose_rows(tmp_path: Path, iceberg: FakeIceberg, store: Store) -> tuple[dict[int, int], frozenset[str]]:
    """Three writes of the producer were in a table that is gone, and the log no longer has them; also what a
    person says to go on."""
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_as(engine, "orders", 1, 2, 3)
        write_all(engine, 1, 2, level=Tier.COMMITTED)
        wait_for_release(engine)
        needed = engine._mark.current.tables["orders"].needed
    del iceberg.committed["orders"]
    return lsns, frozenset([f"orders:1-{needed}"])


def test_it_is_not_said_that_rows_were_committed_that_may_have_been_given_up(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    lsns, accepted = lose_rows(tmp_path, iceberg, store)
    with running_engine(tmp_path / "data", store=store, accept_loss=accepted) as engine:
        wait_until(lambda: engine.tier_of(1, "orders") == "LOST", "the loss")
        wait_until(lambda: not engine._mark.current.resends["orders"].all_unsure, "the producers' numbers")
        assert refusal(engine, "orders", 2) == (
            "it cannot be told whether sequence number 2 of producer 'p' in collection 'orders' was "
            "committed, or given up by who runs the server: look for it there, and write what is missing "
            "with new numbers"
        )
        with LocalSession(engine, options={"producer": "p", "resume_after": 0}) as again:
            assert again.greeting["unsure_until"] == 2
            assert again.greeting["assigned"] == [[3, lsns[3], 1]]
        write_as(engine, "orders", 4, 5)
        write_as(engine, "orders", 1, 2, producer="later")
        with LocalSession(engine, options={"producer": "later", "resume_after": 0}) as again:
            assert "unsure_until" not in again.greeting
    for later in (6, 8):
        with running_engine(tmp_path / "data", store=store) as engine:
            write_as(engine, "orders", later, later + 1)
            # Of a producer's last write it is always known where it was.
            assert resent(engine, "orders", 3, 4, 5) == {3: lsns[3], 4: 0, 5: 0}
            assert "sequence number 2 " in refusal(engine, "orders", 2)


def test_nor_of_a_side_log_that_is_nowhere(tmp_path: Path, iceberg: FakeIceberg) -> None:
    iceberg.hold()
    iceberg.problems["bad"] = SchemaError("no such type")
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")) as engine:
        write_as(engine, "bad", 1, 2, 3, level=OBJECT_STORAGE)
        iceberg.let_go()
        settle_with_others(engine)
    for folder in ("data", "objects"):
        for path in (tmp_path / folder / "side").rglob("*.wal"):
            path.unlink()
    accepted: set[str] = set()
    while True:
        try:
            engine = Engine(
                settings_for(tmp_path / "data", accept_loss=frozenset(accepted)),
                store=Store(tmp_path / "objects"),
            )
            break
        except CorruptLog as error:
            accepted.add(error.message.split("--accept-loss ")[1].split()[0])
    engine.close()
    iceberg.problems.clear()
    with running_engine(tmp_path / "data", store=Store(tmp_path / "objects")) as engine:
        engine.quarantine_calls.release("bad", 60)
        assert "sequence number 2 " in refusal(engine, "bad", 2)
        write_as(engine, "bad", 4, 5, 6)
        assert resent(engine, "bad", 4, 5) == {4: 0, 5: 0}


# Segments of the log that are missing.


def lose_segments(
    tmp_path: Path, iceberg: FakeIceberg, store: Store, *gone: int
) -> tuple[dict[int, int], frozenset[str]]:
    """Five writes of the producer are in segments of their own, and some of these are nowhere; also what a
    person says to go on."""
    iceberg.problem = EndpointUnavailable("so that all segments are kept")
    with running_engine(tmp_path / "data", store=store) as engine:
        lsns = write_as(engine, "orders", 1, 2, 3, 4, 5, level=OBJECT_STORAGE)
        engine.flush(Tier.OBJECT_STORAGE, 60)
        of_orders = {one.last_lsns.get("orders"): one.header.number for one in engine._index.all()}
    first, last = (of_orders[lsns[seq]] for seq in (gone[0], gone[-1]))
    for number in range(first, last + 1):
        (tmp_path / "data/wal" / segment_name(number)).unlink()
        store.remove(number)
    return lsns, frozenset([f"log:{first}-{last}"])


def test_a_write_of_segments_that_were_given_up_is_not_called_committed_when_it_is_sent_again(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    lsns, accepted = lose_segments(tmp_path, iceberg, store, 2, 3)
    with running_engine(tmp_path / "data", store=store, accept_loss=accepted) as engine:
        for seq in (2, 3):
            assert f"sequence number {seq} " in refusal(engine, "orders", seq)
        assert resent(engine, "orders", 4, 5) == {4: lsns[4], 5: lsns[5]}
        with LocalSession(engine, options={"producer": "p", "resume_after": 0}) as again:
            assert again.greeting["unsure_until"] == 3
            assert len(again.greeting["lost"]) == len({tuple(one) for one in again.greeting["lost"]})
            assert [[4, lsns[4], 1], [5, lsns[5], 1]] == again.greeting["assigned"]
        iceberg.problem = None
        engine.flush(Tier.COMMITTED, 60)
    assert iceberg.lsns["orders"] == [lsns[1], lsns[4], lsns[5]]
    for later in (6, 8):
        with running_engine(tmp_path / "data", store=store) as engine:
            write_as(engine, "orders", later, later + 1)
            wait_for_release(engine)
            assert "sequence number 3 " in refusal(engine, "orders", 3)
    shutil.rmtree(tmp_path / "data")
    with running_engine(tmp_path / "data", store=store) as engine:
        assert "sequence number 3 " in refusal(engine, "orders", 3)


def test_the_last_write_of_a_producer_is_lost_with_its_segment_and_nobody_hears_that_it_is_committed(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    lsns, accepted = lose_segments(tmp_path, iceberg, store, 4, 5)
    iceberg.problem = None
    with (
        running_engine(tmp_path / "data", store=store, accept_loss=accepted) as engine,
        LocalSession(engine, options={"producer": "p", "resume_after": 0}) as again,
    ):
        assert again.greeting["last_seq"] == 5
        assert again.greeting["assigned"] == [[5, lsns[5], 1]]
        assert resent(engine, "orders", 5) == {5: lsns[5]}
        assert "sequence number 4 " in refusal(engine, "orders", 4)
        later = write_as(engine, "orders", 6)
        assert engine.tier_of(lsns[5], "orders") == "LOST"
        assert again.lsns("COMMITTED") == []
    assert iceberg.lsns["orders"] == [lsns[1], lsns[2], lsns[3], later[6]]


def test_the_mark_of_a_version_that_gave_segments_up_without_a_word_of_their_producers_is_completed(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    """It is the same for a process that died in between."""
    _, accepted = lose_segments(tmp_path, iceberg, store, 2, 3)
    iceberg.problem = None
    Engine(settings_for(tmp_path / "data", accept_loss=accepted), store=store).close()
    for path in (tmp_path / "data/low-water.json", *(tmp_path / "objects/low-water").iterdir()):
        older = json.loads(path.read_text()) | {"lost": {}, "resends": {}}
        path.unlink()
        path.write_text(json.dumps(older))
    with running_engine(tmp_path / "data", store=store) as engine:
        assert "sequence number 2 " in refusal(engine, "orders", 2)


# The mark.


def test_a_mark_of_an_older_version_does_not_say_whose_writes_were_given_up(
    tmp_path: Path, iceberg: FakeIceberg, store: Store
) -> None:
    with running_engine(tmp_path / "data", store=store) as engine:
        drop(engine, iceberg, 1, 2, 3)
        write_as(engine, "bad", 4)
        write_all(engine, 2, collection="good", level=Tier.COMMITTED)
        wait_for_release(engine)
    for path in (tmp_path / "data/low-water.json", *(tmp_path / "objects/low-water").iterdir()):
        older = json.loads(path.read_text())
        del older["resends"]
        path.unlink()
        path.write_text(json.dumps(older))
    for later in ((5, 6, 7), (8,)):
        with running_engine(tmp_path / "data", store=store) as engine:
            assert "sequence number 2 " in refusal(engine, "bad", 2)
            write_as(engine, "bad", *later)
            assert resent(engine, "bad", 5, 6) == {5: 0, 6: 0}
            mark = read_file(tmp_path / "data")
            assert mark is not None
            assert mark.resends == {"bad": Resends({}, {"p": 4})}


def test_the_mark_is_read_as_it_was_written() -> None:
    mark = LowWater(
        lost={"orders": ((3, 9),), "others": ((1, 2),)},
        resends={
            "orders": Resends({"p": (Run(1, 3, 2), Run(5, 8, 1))}, {"q": 4}),
            "others": Resends(all_unsure=True),
        },
    )
    assert LowWater.decode(mark.encode(), "here") == mark


def test_what_is_given_up_twice_is_kept_once() -> None:
    first = Resends().with_known([Known("p", 9, 0, (Run(1, 10, 3), Run(6, 20, 1)))])
    again = [Known("p", 9, 0, (Run(2, 11, 2), Run(6, 20, 2))), Known("q", 1, 0, ())]
    assert first.with_known(again) == Resends({"p": (Run(1, 10, 3), Run(6, 20, 2))})
    assert first.with_known([Known("q", 1, 0, (Run(1, 15, 1),))]) == Resends({"q": (Run(1, 15, 1),)})


def test_what_there_is_no_room_for_is_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [
        Known("p", 9, 0, (Run(1, 10, 1), Run(4, 13, 2), Run(9, 30, 1))),
        Known("q", 5, 3, (Run(5, 40, 1),)),
    ]
    assert Resends().with_known(known).unsure == {"q": 3}  # the log had no room for it either
    monkeypatch.setattr(resends, "_MOST_RUNS", 3)
    bounded = Resends().with_known(known)
    assert bounded == Resends({"p": (Run(9, 30, 1),), "q": (Run(5, 40, 1),)}, {"p": 5, "q": 3})
    monkeypatch.setattr(resends, "_MOST_UNSURE", 1)
    unbounded = Resends().with_known(known)
    assert unbounded == Resends(bounded.runs, {}, all_unsure=True)
    assert unbounded.with_known(known) == unbounded
    monkeypatch.setattr(resends, "_MOST_UNSURE", 2)
    assert unbounded.with_known(known) == Resends(bounded.runs, {"p": 9, "q": 5})
