from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.certify.ingest.journal import Journal, Write
from headrace.certify.ingest.oracle import EndState, Finding, Found, Released
from headrace.errors import WriteLost
from headrace.model.tiers import Tier


class Ended:
    """Two writes of two rows, told everything, and as they should be; a test changes something."""

    def __init__(self) -> None:
        self.journal, self.found = Journal(), Found()
        self.lost: list[tuple[int, int]] = []
        self.early: list[Write] = []
        self.known = self.add("producer-1", 1, is_once=True)
        self.stock = self.add("stock-1", 2, is_once=False)

    def add(self, name: str, lsn: int, *, is_once: bool) -> Write:
        write = self.journal.wrote(name, "events", 2, is_once=is_once)
        for tier in Tier:
            self.journal.told(write, lsn, tier)
        self.put(name, lsn)
        return write

    def put(self, name: str, lsn: int, rows: tuple[int, ...] = (0, 1)) -> None:
        self.found.places[name] += [(row, lsn, row) for row in rows]
        self.found.names[lsn].add(name)

    def remove(self, name: str) -> None:
        del self.found.places[name]
        for names in list(self.found.names.values()):
            names.discard(name)
        self.found.names = {lsn: names for lsn, names in self.found.names.items() if names}

    def findings(self, binding: Tier, released: Released = ()) -> list[Finding]:
        said = {lsn: "COMMITTED" if lsn in self.found.names else "LOST" for lsn in self.journal.given}
        state = EndState(self.journal, self.found, self.lost, said, self.early)
        return state.findings_of_memory() if binding is Tier.MEMORY else state.findings(binding, released)


def lose(ended: Ended, told: Tier) -> None:
    """The write of a client without a producer, which was told no more than this."""
    ended.stock.told = {tier: 2 for tier in Tier if tier <= told}
    ended.remove("stock-1")
    ended.lost = [(2, 5)]


def lost_with_word(ended: Ended) -> None:
    ended.journal.failed(ended.known, WriteLost("it is lost"))


def reuse(ended: Ended) -> None:
    ended.journal.told(ended.stock, 1, Tier.LOCAL_DISK)


def tell_out_of_order(ended: Ended) -> None:
    ended.journal.told(ended.journal.wrote("stock-2", "events", 2, is_once=False), 1, Tier.MEMORY)


def repeat(ended: Ended) -> None:
    ended.put("producer-1", 1)
    ended.found.repeated = [(1, 0), (1, 1)]


@pytest.mark.parametrize("tier", Tier)
def test_all_is_well(tier: Tier) -> None:
    assert Ended().findings(tier) == []


@pytest.mark.parametrize(
    ("change", "binding", "said"),
    [
        (repeat, Tier.LOCAL_DISK, "rows twice"),
        (lambda it: it.put("producer-1", 9), Tier.LOCAL_DISK, "more than once"),
        (lambda it: it.put("producer-1", 9, (0,)), Tier.LOCAL_DISK, "in part"),
        (lambda it: it.found.places["stock-1"].pop(), Tier.LOCAL_DISK, "in part"),
        (lambda it: it.put("nobody-1", 9), Tier.LOCAL_DISK, "nobody wrote"),
        (lambda it: lose(it, Tier.LOCAL_DISK), Tier.LOCAL_DISK, "not there"),
        (lambda it: lose(it, Tier.COMMITTED), Tier.OBJECT_STORAGE, "had been promised"),
        (lambda it: it.remove("producer-1"), Tier.COMMITTED, "not there"),
        (lambda it: it.journal.told(it.stock, 7, Tier.COMMITTED), Tier.COMMITTED, "under another LSN"),
        (lambda it: it.early.append(it.stock), Tier.COMMITTED, "not in the snapshot"),
        (lost_with_word, Tier.MEMORY, "told that they are lost"),
        (reuse, Tier.MEMORY, "LSNs of several writes"),
        (lambda it: it.lost.append((1, 1)), Tier.MEMORY, "lost, as the server says, and are in a table"),
        (lambda it: it.remove("stock-1"), Tier.MEMORY, "neither in a table nor lost"),
        (tell_out_of_order, Tier.MEMORY, "out of their order"),
    ],
)
def test_what_is_wrong_is_found(change: Callable[[Ended], object], binding: Tier, said: str) -> None:
    ended = Ended()
    change(ended)
    assert [finding for finding in ended.findings(binding) if said in finding.text]


def test_a_tier_is_not_held_to_what_only_a_lower_one_was_told() -> None:
    ended = Ended()
    lose(ended, Tier.LOCAL_DISK)
    assert ended.findings(Tier.OBJECT_STORAGE) == []


def test_a_promise_of_a_disk_that_was_lost_is_void_and_no_other() -> None:
    ended = Ended()
    lose(ended, Tier.LOCAL_DISK)
    assert ended.findings(Tier.LOCAL_DISK, {("stock-1", 2)}) == []
    assert ended.findings(Tier.LOCAL_DISK, {("stock-1", 3), ("stock-2", 2)})
    ended.journal.told(ended.stock, 2, Tier.OBJECT_STORAGE)
    assert ended.findings(Tier.LOCAL_DISK, {("stock-1", 2)})


def test_a_promise_is_not_taken_back_by_saying_that_it_is_lost() -> None:
    ended = Ended()
    ended.remove("producer-1")
    ended.lost = [(1, 1)]
    lost_with_word(ended)
    assert [one for one in ended.findings(Tier.LOCAL_DISK) if "not there" in one.text]
    ended.known.told = {Tier.MEMORY: 1}
    assert ended.findings(Tier.LOCAL_DISK) == []


def test_only_doubles_are_called_twice() -> None:
    ended = Ended()
    repeat(ended)
    assert all(finding.is_twice for finding in ended.findings(Tier.COMMITTED))
    ended.remove("stock-1")
    assert not all(finding.is_twice for finding in ended.findings(Tier.COMMITTED))
