"""Streams of random messages, legal and not, held against a plain reading of the specification."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.errors import ProtocolError
from headrace.model.key_range import FULL_RANGE
from headrace.model.materializations import Materialization
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Load,
    Loaded,
    Message,
    Open,
    Opened,
    StartCommit,
    StartedCommit,
    Store,
)
from headrace.protocol.phases import Phases
from tests.examples import examples
from tests.protocol.samples import (
    DELTA,
    MATERIALIZATION,
    STANDARD,
    documents,
    flags,
    keys,
    load,
    loaded,
    store,
)

TWO_BINDINGS = Materialization("two", "memory", {}, MATERIALIZATION.bindings[:2])
# Few, so that keys repeat.
KEYS = range(6)
UNKNOWN = 7
KINDS = [
    "Open",
    "Opened",
    "Acknowledge",
    "Acknowledged",
    "Load",
    "Loaded",
    "Flush",
    "Flushed",
    "Store",
    "StartCommit",
    "StartedCommit",
]
WITH_ROWS = ("Load", "Loaded", "Store")
FAULTS = {
    "Load": ["null key", "other column"],
    "Loaded": ["null key", "other column", "document missing", "null document"],
    "Store": [
        "null key",
        "other column",
        "document missing",
        "no documents",
        "exists missing",
        "null exists",
    ],
}


@dataclass(frozen=True)
class Said:
    """A message as a person would put it."""

    kind: str
    binding: int = STANDARD
    ids: tuple[int, ...] = ()
    fault: str | None = None


END = Said("the end")


@dataclass
class Specification:
    """What the specification allows, with a set of keys for each thing that may happen to a key once."""

    at: str = "start"
    acknowledged: bool = False
    any_loads: bool = False
    owes_acknowledged: bool = False
    asked: set[tuple[int, int]] = field(default_factory=set)
    answered: set[tuple[int, int]] = field(default_factory=set)
    stored: set[tuple[int, int]] = field(default_factory=set)

    def allows(self, said: Said) -> bool:
        rows = [(said.binding, number) for number in said.ids]
        good_rows = said.binding in (STANDARD, DELTA) and not said.fault and len(set(rows)) == len(rows)
        match said.kind:
            case "Open":
                return self.at == "start"
            case "Opened":
                return self.at == "opening"
            case "Acknowledge":
                return self.at == "acknowledge"
            case "Acknowledged":
                in_time = self.at in ("acknowledge", "load") and not self.acknowledged
                return in_time or self.owes_acknowledged
            case "Load":
                new = good_rows and self.asked.isdisjoint(rows)
                return self.at == "load" and said.binding != DELTA and new
            case "Loaded":
                awaited = good_rows and self.asked.issuperset(rows) and self.answered.isdisjoint(rows)
                return self.at in ("load", "flush") and self.acknowledged and awaited
            case "Flush":
                return self.at == "load" and self.acknowledged
            case "Flushed":
                return self.at == "flush"
            case "Store":
                return self.at == "store" and good_rows and self.stored.isdisjoint(rows)
            case "StartCommit":
                return self.at == "store"
            case "StartedCommit":
                return self.at == "commit"
            case "the end":
                return self.at in ("start", "acknowledge") or (self.at == "load" and not self.any_loads)
        raise AssertionError(said)

    def follow(self, said: Said) -> None:
        rows = [(said.binding, number) for number in said.ids]
        match said.kind:
            case "Opened" | "StartedCommit":
                self.acknowledged = self.any_loads = False
                self.asked, self.answered, self.stored = set(), set(), set()
            case "Acknowledged":
                self.acknowledged = True
                self.owes_acknowledged = False
            case "Load":
                self.any_loads = True
                self.asked.update(rows)
            case "Loaded":
                self.answered.update(rows)
            case "Store":
                self.stored.update(rows)
            case "the end":
                self.owes_acknowledged = self.at != "start" and not self.acknowledged
        goes_to = {
            "Open": "opening",
            "Opened": "acknowledge",
            "Acknowledge": "load",
            "Flush": "flush",
            "Flushed": "store",
            "StartCommit": "commit",
            "StartedCommit": "acknowledge",
            "the end": "over",
        }
        self.at = goes_to.get(said.kind, self.at)


@cache
def spoken(said: Said) -> Message:
    """The message that says so."""
    match said.kind:
        case "Load":
            return spoil(load(*said.ids, binding=said.binding), said)
        case "Loaded":
            return spoil(loaded(*said.ids, binding=said.binding), said)
        case "Store":
            return spoil(store(*said.ids, binding=said.binding), said)
        case "Open":
            return Open(TWO_BINDINGS, "1", FULL_RANGE)
        case "StartCommit":
            return StartCommit({"n": 1})
    plain: dict[str, Message] = {
        "Opened": Opened(),
        "Acknowledge": Acknowledge(),
        "Acknowledged": Acknowledged(),
        "Flush": Flush(),
        "Flushed": Flushed(),
        "StartedCommit": StartedCommit(),
    }
    return plain[said.kind]


def spoil(message: Load | Loaded | Store, said: Said) -> Message:
    """The same message with one thing wrong; it always has a row that can be."""
    first = said.ids[:1] or (0,)
    match said.fault, message:
        case "null key", _:
            return replace(message, keys=pa.record_batch({"id": pa.array([None, *said.ids[1:]], pa.int64())}))
        case "other column", _:
            return replace(message, keys=message.keys.rename_columns(["other"]))
        case "document missing", Loaded() | Store():
            return replace(message, keys=keys(*first, *said.ids[1:]), documents=documents(*said.ids[1:]))
        case "null document", Loaded():
            nulled = pa.array([None, *documents(*said.ids[1:]).to_pylist()], pa.string())
            return replace(message, keys=keys(*first, *said.ids[1:]), documents=nulled)
        case "no documents", Store():
            return replace(message, documents=None)
        case "exists missing", Store():
            return replace(message, exists=flags(*[True] * (len(said.ids) + 1)))
        case "null exists", Store():
            return replace(message, exists=flags(None, *[True] * (len(said.ids) - 1)))
    assert said.fault is None
    return message


@st.composite
def anything(draw: st.DrawFn) -> Said:
    kind = draw(st.sampled_from(KINDS))
    if kind not in WITH_ROWS:
        return Said(kind)
    # Most with nothing wrong but their keys.
    binding = draw(st.sampled_from([STANDARD, STANDARD, STANDARD, DELTA, DELTA, -1, UNKNOWN]))
    fault = draw(st.sampled_from([None, None, None, *FAULTS[kind]]))
    ids = draw(st.lists(st.sampled_from(KEYS), min_size=0 if fault is None else 1, max_size=4))
    return Said(kind, binding, tuple(ids), fault)


def take(phases: Phases, said: Said) -> None:
    if said == END:
        phases.end()
    else:
        phases.observe(spoken(said))


SMALL_MESSAGES = [
    END,
    *map(Said, KINDS),
    *(Said(kind, binding) for kind in WITH_ROWS for binding in (DELTA, -1, UNKNOWN)),
    *(
        Said(kind, binding, (number,))
        for kind in WITH_ROWS
        for binding in (STANDARD, DELTA, -1, UNKNOWN)
        for number in KEYS
    ),
    *(Said(kind, STANDARD, (number, number)) for kind in WITH_ROWS for number in KEYS),
    *(
        Said(kind, binding, (number,), fault)
        for kind in WITH_ROWS
        for fault in FAULTS[kind]
        for binding in (STANDARD, DELTA)
        for number in KEYS
    ),
]


class Streams(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.specification = Specification()
        self.phases = Phases()
        self.history: list[Said] = []

    @rule(data=st.data(), count=st.integers(1, 8))
    def the_right_messages(self, data: st.DataObject, count: int) -> None:
        """Takes streams far; left to chance, nearly all would end at their first messages."""
        for _ in range(count):
            if kinds := self.allowed_kinds():
                kind = data.draw(st.sampled_from(kinds))
                self.goes_on(data.draw(self.right_rows(kind)) if kind in WITH_ROWS else Said(kind))
        self.judge_small_messages()

    def judge_small_messages(self) -> None:
        """What would become of each, tried on copies. Where a kind may not come at all, one is enough."""
        allowed = self.allowed_kinds()
        for said in SMALL_MESSAGES:
            if (
                said.kind in WITH_ROWS
                and said.kind not in allowed
                and said != Said(said.kind, STANDARD, (0,))
            ):
                continue
            phases = self.copy()
            if self.specification.allows(said):
                take(phases, said)
            else:
                with pytest.raises(ProtocolError):
                    take(phases, said)

    @rule(said=anything())
    def any_message(self, said: Said) -> None:
        self.goes_on_or_is_refused(said)

    @rule()
    def an_end_and_what_may_follow(self) -> None:
        """Tried on copies, so that the stream can go on."""
        if not self.specification.allows(END):
            self.is_refused(END)
            return
        branch = Streams()
        for said in (*self.history, END):
            branch.goes_on(said)
        branch.is_refused(Said("Load"))
        for _ in range(2):
            branch.goes_on_or_is_refused(Said("Acknowledged"))
        branch.is_refused(END)

    @invariant()
    def both_are_at_the_same_place(self) -> None:
        at = {"start": "OPEN", "over": "ENDED"}.get(self.specification.at, self.specification.at.upper())
        assert self.phases.phase == at
        assert self.phases.at_rest == self.specification.allows(END)
        assert self.specification.at == "over" or self.phases.acknowledged == self.specification.acknowledged

    def allowed_kinds(self) -> list[str]:
        return [kind for kind in KINDS if self.specification.allows(Said(kind))]

    def right_rows(self, kind: str) -> st.SearchStrategy[Said]:
        """Rows that such a message may have, if it may come at all."""
        keys = [(binding, number) for binding in (STANDARD, DELTA) for number in KEYS]
        seen = self.specification
        fits = {
            "Load": [key for key in keys if key not in seen.asked and key[0] == STANDARD],
            "Loaded": [key for key in keys if key in seen.asked - seen.answered],
            "Store": [key for key in keys if key not in seen.stored],
        }[kind]
        binding = st.sampled_from([binding for binding, _ in fits] or [STANDARD])
        return binding.flatmap(
            lambda binding: st.sets(
                st.sampled_from([number for owner, number in fits if owner == binding] or [0]),
                min_size=1 if fits else 0,
                max_size=len(KEYS) if fits else 0,
            ).map(lambda ids: Said(kind, binding, tuple(ids)))
        )

    def goes_on_or_is_refused(self, said: Said) -> None:
        if self.specification.allows(said):
            self.goes_on(said)
        else:
            self.is_refused(said)

    def goes_on(self, said: Said) -> None:
        assert self.specification.allows(said)
        self.specification.follow(said)
        take(self.phases, said)
        self.history.append(said)

    def is_refused(self, said: Said) -> None:
        """Tried on a copy, so that the stream can go on."""
        phases = self.copy()
        with pytest.raises(ProtocolError) as refused:
            take(phases, said)
        assert refused.value.message_name == (said.kind if said != END else "the end of the stream")
        assert refused.value.phase == self.phases.phase
        for later in (*map(Said, KINDS), END):
            with pytest.raises(ProtocolError):
                take(phases, later)

    def copy(self) -> Phases:
        phases = copy(self.phases)
        phases._keys = deepcopy(self.phases._keys)
        return phases


TestStreams = Streams.TestCase
TestStreams.settings = examples(1, stateful_step_count=25)
