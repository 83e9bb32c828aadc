"""Groups: which write got which LSN."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.groups import Group
from headrace.client.ledger import Ledger
from headrace.model.tiers import Tier


def group_of(*rows: int) -> Group:
    group = Group(Ledger(Tier.LOCAL_DISK), first=10)
    start = 0
    for count in rows:
        group.batches.append(pa.record_batch([pa.array(range(start, start + count))], names=["a"]))
        start += count
    group.count = len(rows)
    return group


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.integers(0, 3)), min_size=1), st.data())
def test_lsns_follow_their_runs(pieces: list[tuple[int, bool, int]], data: st.DataObject) -> None:
    group, lsns, next_lsn = group_of(), list[int](), 100
    for count, is_known, gap in pieces:
        next_lsn += gap
        group.assign(len(lsns), next_lsn if is_known else 0, count)
        lsns += [next_lsn + n if is_known else 0 for n in range(count)]
        next_lsn += count
        assert group.last_lsn == lsns[-1]
    assert [group.lsn_of(index) for index in range(len(lsns) + 2)] == [*lsns, None, None]
    kept = data.draw(st.integers(0, len(lsns)))
    group.unassign(kept)
    assert [group.lsn_of(index) for index in range(len(lsns))] == lsns[:kept] + [None] * (len(lsns) - kept)
    assert group.accepted == kept
    assert group.last_lsn == (lsns[kept - 1] if kept else 0)
    again = len(lsns) - kept
    if again:
        group.assign(kept, 5000, again)
    assert [group.lsn_of(index) for index in range(len(lsns))] == lsns[:kept] + list(
        range(5000, 5000 + again)
    )


def test_contiguous_runs_become_one() -> None:
    group = group_of()
    for index in range(1000):
        group.assign(index, 500 + index, 1)
    assert len(group._runs) == 1


def test_what_is_sent_again_is_what_was_not_accepted() -> None:
    group = group_of(2, 1, 3)
    group.combine()
    seq, batch, rows = group.unaccepted()
    assert (seq, batch.column(0).to_pylist(), rows) == (10, [0, 1, 2, 3, 4, 5], [2, 1, 3])
    group.assign(0, 77, 2)
    seq, batch, rows = group.unaccepted()
    assert (seq, batch.column(0).to_pylist(), rows) == (12, [3, 4, 5], [3])
