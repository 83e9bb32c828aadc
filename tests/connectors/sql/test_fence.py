"""The fence against a model that keeps a checkpoint for every single key."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from headrace.connectors.sql.fence import CheckpointRow, Fence, FenceTable, inherited_checkpoint
from headrace.connectors.sqlite.database import SqliteDatabase
from headrace.errors import CheckpointConflict, Fenced
from headrace.model.key_range import FULL_RANGE, KeyRange
from tests.examples import examples

KEYS = 8
RANGES = st.tuples(st.integers(0, KEYS - 1), st.integers(0, KEYS - 1)).map(
    lambda ends: KeyRange(min(ends), max(ends))
)


class Opens(RuleBasedStateMachine):
    """Opens and commits in any order. Each key knows who may commit for it, and what was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.database = SqliteDatabase(":memory:")
        self.fences = FenceTable(("main", "headrace_checkpoints"))
        self.database.execute(self.fences.create_statement)
        self.checkpoints: list[dict[str, int]] = [{} for _ in range(KEYS)]
        self.owners: list[int | None] = [None] * KEYS
        self.handed_out: list[Fence] = []
        self.commits = 0

    def keys(self, key_range: KeyRange) -> range:
        return range(key_range.begin, key_range.end + 1)

    @rule(key_range=RANGES)
    def open(self, key_range: KeyRange) -> None:
        standing = [self.checkpoints[key] for key in self.keys(key_range)]
        try:
            with self.database.transaction():
                fence = self.fences.install(self.database, "view", key_range)
        except CheckpointConflict:
            assert any(checkpoint != standing[0] for checkpoint in standing)
            return
        assert all(checkpoint == fence.checkpoint for checkpoint in standing)
        for key in self.keys(key_range):
            self.owners[key] = len(self.handed_out)
        self.handed_out.append(fence)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        if not self.handed_out:
            return
        number = data.draw(st.integers(0, len(self.handed_out) - 1))
        fence = self.handed_out[number]
        self.commits += 1
        mine = [self.owners[key] == number for key in self.keys(fence.key_range)]
        with contextlib.ExitStack() as stack:
            if not all(mine):
                stack.enter_context(pytest.raises(Fenced))
            with self.database.transaction():
                self.fences.commit(self.database, fence, {"commit": self.commits})
        if all(mine):
            for key in self.keys(fence.key_range):
                self.checkpoints[key] = {"commit": self.commits}

    def teardown(self) -> None:
        self.database.close()


Opens.TestCase.settings = examples(1.5, stateful_step_count=30)
TestOpens = Opens.TestCase


def rows_of(database: SqliteDatabase) -> list[tuple[int, int, int, str]]:
    rows = database.query(
        "SELECT key_begin, key_end, fence, checkpoint FROM headrace_checkpoints ORDER BY key_begin, key_end"
    )
    return [(begin, end, fence, checkpoint) for begin, end, fence, checkpoint in rows]


def test_the_table_after_opens_is_as_the_algorithm_says() -> None:
    with SqliteDatabase(":memory:") as database:
        assert isinstance(database, SqliteDatabase)
        fences = FenceTable(("main", "headrace_checkpoints"))
        database.execute(fences.create_statement)

        def install(begin: int, end: int, name: str = "view") -> Fence:
            with database.transaction():
                return fences.install(database, name, KeyRange(begin, end))

        assert install(0, 99).number == 1
        assert rows_of(database) == [(0, 99, 1, "{}")]
        assert install(0, 99).number == 2  # the row of exactly this range is adopted
        assert rows_of(database) == [(0, 99, 2, "{}")]
        assert install(50, 149).number == 1  # an overlap raises the other, and is a row of its own
        assert rows_of(database) == [(0, 99, 3, "{}"), (50, 149, 1, "{}")]
        assert install(100, 199).number == 1  # does not touch 0-99
        assert rows_of(database) == [(0, 99, 3, "{}"), (50, 149, 2, "{}"), (100, 199, 1, "{}")]
        install(0, 99, "another view")
        assert (0, 99, 3, "{}") in rows_of(database)


def test_a_refused_open_raises_no_fence() -> None:
    with SqliteDatabase(":memory:") as database:
        fences = FenceTable(("main", "headrace_checkpoints"))
        database.execute(fences.create_statement)
        with database.transaction():
            lower = fences.install(database, "view", KeyRange(0, 4))
        with database.transaction():
            fences.commit(database, lower, {"n": 1})
        with pytest.raises(CheckpointConflict), database.transaction():
            fences.install(database, "view", KeyRange(0, 9))
        with database.transaction():
            fences.commit(database, lower, {"n": 2})  # still the owner


def test_keys_that_nobody_covered_stand_at_the_beginning() -> None:
    row = CheckpointRow(KeyRange(0, 10), 1, {"n": 1}, 1, "somebody")
    assert inherited_checkpoint([row], "view", KeyRange(3, 5)) == {"n": 1}
    assert inherited_checkpoint([], "view", FULL_RANGE) == {}
    with pytest.raises(CheckpointConflict, match=r"00000000-0000000a and 0000000b-0000000b"):
        inherited_checkpoint([row], "view", KeyRange(0, 11))


def test_a_fenced_commit_says_who_took_over() -> None:
    with SqliteDatabase(":memory:") as database:
        fences = FenceTable(("main", "headrace_checkpoints"))
        database.execute(fences.create_statement)
        with database.transaction():
            older = fences.install(database, "view", KeyRange(0, 9))
        with database.transaction():
            fences.install(database, "view", KeyRange(5, 20))
        with pytest.raises(Fenced) as fenced, database.transaction():
            fences.commit(database, older, {"n": 1})
        assert "keys 00000005-00000014 and fence 1" in fenced.value.taken_by
        assert fenced.value.fence == 1
        database.execute("DELETE FROM headrace_checkpoints")
        with pytest.raises(Fenced, match="removed"), database.transaction():
            fences.commit(database, older, {"n": 1})
        with database.transaction():
            again = fences.install(database, "view", KeyRange(0, 9))
        assert again.number == older.number
        with pytest.raises(Fenced), database.transaction():  # its number is there again, but not its row
            fences.commit(database, older, {"n": 1})
