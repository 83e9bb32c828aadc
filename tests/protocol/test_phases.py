"""The order of messages: what may be said in each phase, and what no message may say at all."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError, SchemaError
from headrace.model.collections import Collection
from headrace.model.key_range import FULL_RANGE
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.messages import (
    MAX_DOCUMENT_BYTES,
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
from headrace.protocol.phases import Phase, Phases
from tests.protocol.samples import (
    DELTA,
    OPEN,
    STANDARD,
    WITHOUT_DOCUMENT,
    documents,
    flags,
    keys,
    load,
    loaded,
    store,
    values,
)


class End:
    """The runtime ends the stream."""


END = End()
Step = Message | End
Path = tuple[Step, ...]

OPENED: Path = (OPEN, Opened())
TO_LOAD: Path = (*OPENED, Acknowledge(), Acknowledged())
TO_FLUSH: Path = (*TO_LOAD, load(1, 2), Flush())
TO_STORE: Path = (*TO_FLUSH, loaded(1), Flushed())
COMMITTED: Path = (*TO_STORE, store(1, 3, exists=[True, False]), StartCommit({"at": 1}), StartedCommit())


def take(phases: Phases, step: Step) -> None:
    if isinstance(step, End):
        phases.end()
    else:
        phases.observe(step)


def walk(path: Iterable[Step]) -> Phases:
    phases = Phases()
    for step in path:
        take(phases, step)
    return phases


def refusal(phases: Phases, step: Step) -> ProtocolError:
    with pytest.raises(ProtocolError) as refused:
        take(phases, step)
    return refused.value


LEGAL_PATHS: dict[str, tuple[Path, Phase, int]] = {
    "nothing at all": ((), Phase.OPEN, 0),
    "an end before Open": ((END,), Phase.ENDED, 0),
    "an end after Opened": ((*OPENED, END), Phase.ENDED, 1),
    "an end after Acknowledge": ((*OPENED, Acknowledge(), END), Phase.ENDED, 1),
    "an end after Acknowledged": ((*OPENED, Acknowledged(), END), Phase.ENDED, 1),
    "an end after both": ((*TO_LOAD, END), Phase.ENDED, 1),
    "an end after a transaction": ((*COMMITTED, END), Phase.ENDED, 2),
    "an end in the second transaction": ((*COMMITTED, Acknowledge(), Acknowledged(), END), Phase.ENDED, 2),
    "Acknowledged after an end": ((*OPENED, END, Acknowledged()), Phase.ENDED, 1),
    "Acknowledged after Acknowledge and an end": (
        (*OPENED, Acknowledge(), END, Acknowledged()),
        Phase.ENDED,
        1,
    ),
    "Acknowledged after a transaction and an end": ((*COMMITTED, END, Acknowledged()), Phase.ENDED, 2),
    "Acknowledge first": ((*OPENED, Acknowledge(), Acknowledged()), Phase.LOAD, 1),
    "Acknowledged first": ((*OPENED, Acknowledged(), Acknowledge()), Phase.LOAD, 1),
    "Acknowledged among loads": (
        (*OPENED, Acknowledge(), load(1), Acknowledged(), load(2), Flush()),
        Phase.FLUSH,
        1,
    ),
    "Loaded at once, late and in between": (
        (*TO_LOAD, load(1), loaded(1), load(2, 3), Flush(), loaded(3), loaded(2), Flushed()),
        Phase.STORE,
        1,
    ),
    "Loaded for a load that came before Acknowledged": (
        (*OPENED, Acknowledge(), load(1), Acknowledged(), loaded(1)),
        Phase.LOAD,
        1,
    ),
    "keys that do not exist": ((*TO_LOAD, load(1, 2), Flush(), Flushed()), Phase.STORE, 1),
    "an empty transaction": (
        (*TO_LOAD, Flush(), Flushed(), StartCommit({"n": 1}), StartedCommit({})),
        Phase.ACKNOWLEDGE,
        2,
    ),
    "stores without loads": ((*TO_LOAD, Flush(), Flushed(), store(1), store(2)), Phase.STORE, 1),
    "a key that was loaded and not stored": ((*TO_STORE, StartCommit({"n": 1})), Phase.COMMIT, 1),
    "batches without rows": (
        (*TO_LOAD, load(), loaded(), Flush(), loaded(), Flushed(), store()),
        Phase.STORE,
        1,
    ),
    "every binding, with the same key in each": (
        (
            *TO_LOAD,
            load(1),
            load(1, binding=WITHOUT_DOCUMENT),
            loaded(1),
            loaded(1, binding=WITHOUT_DOCUMENT),
            Flush(),
            Flushed(),
            store(1),
            store(1, binding=DELTA),
            store(1, binding=WITHOUT_DOCUMENT),
        ),
        Phase.STORE,
        1,
    ),
    "the same keys again in the next transactions": (
        (
            *COMMITTED,
            Acknowledged(),
            Acknowledge(),
            *(load(1, 2), Flush(), loaded(1, 2), Flushed(), store(1), StartCommit({"n": 1}), StartedCommit()),
            Acknowledge(),
            load(2, 1),
            Acknowledged(),
            loaded(2),
        ),
        Phase.LOAD,
        3,
    ),
}


@pytest.mark.parametrize(("path", "phase", "transaction"), LEGAL_PATHS.values(), ids=LEGAL_PATHS)
def test_a_legal_path_is_accepted(path: Path, phase: Phase, transaction: int) -> None:
    phases = walk(path)
    assert (phases.phase, phases.transaction) == (phase, transaction)


class State(NamedTuple):
    """A place that a stream can be in: what may follow there, and what a refusal says should have."""

    path: Path
    phase: Phase
    expected: str
    may_end: bool = False

    @property
    def allowed(self) -> set[str]:
        names = set(re.findall(r"\w+", self.expected))
        return names & {kind.__name__ for kind in EXAMPLES}


NOTHING = "nothing, since the stream has ended"
EXAMPLES: dict[type, Message] = {
    type(message): message
    for message in (
        OPEN,
        Opened(),
        Acknowledge(),
        Acknowledged(),
        load(9),
        loaded(),
        Flush(),
        Flushed(),
        store(9),
        StartCommit({"at": 9}),
        StartedCommit(),
    )
}

STATES: dict[str, State] = {
    "start": State((), Phase.OPEN, "Open", may_end=True),
    "opening": State((OPEN,), Phase.OPENING, "Opened"),
    "acknowledge": State(OPENED, Phase.ACKNOWLEDGE, "Acknowledge or Acknowledged", may_end=True),
    "acknowledge, acknowledged": State(
        (*OPENED, Acknowledged()), Phase.ACKNOWLEDGE, "Acknowledge", may_end=True
    ),
    "load": State((*OPENED, Acknowledge()), Phase.LOAD, "Load or Acknowledged", may_end=True),
    "load, with an empty Load": State(
        (*OPENED, Acknowledge(), load()), Phase.LOAD, "Load or Acknowledged", may_end=False
    ),
    "load, with loads": State((*OPENED, Acknowledge(), load(1)), Phase.LOAD, "Load or Acknowledged"),
    "load, acknowledged": State(TO_LOAD, Phase.LOAD, "Load, Loaded or Flush", may_end=True),
    "load, acknowledged, with loads": State((*TO_LOAD, load(1)), Phase.LOAD, "Load, Loaded or Flush"),
    "flush": State(TO_FLUSH, Phase.FLUSH, "Loaded or Flushed"),
    "flush without loads": State((*TO_LOAD, Flush()), Phase.FLUSH, "Loaded or Flushed"),
    "flush, after Loaded": State((*TO_FLUSH, loaded(1)), Phase.FLUSH, "Loaded or Flushed"),
    "store": State(TO_STORE, Phase.STORE, "Store or StartCommit"),
    "store, with stores": State((*TO_STORE, store(1)), Phase.STORE, "Store or StartCommit"),
    "commit": State((*TO_STORE, StartCommit({"n": 1})), Phase.COMMIT, "StartedCommit"),
    "second acknowledge": State(COMMITTED, Phase.ACKNOWLEDGE, "Acknowledge or Acknowledged", may_end=True),
    "second load": State((*COMMITTED, Acknowledge()), Phase.LOAD, "Load or Acknowledged", may_end=True),
    "ended at once": State((END,), Phase.ENDED, NOTHING),
    "ended, acknowledged": State((*TO_LOAD, END), Phase.ENDED, NOTHING),
    "ended, acknowledged afterwards": State((*OPENED, END, Acknowledged()), Phase.ENDED, NOTHING),
}
# Only here may more follow than a refusal says: an Acknowledged that was on its way.
UNACKNOWLEDGED_ENDS: dict[str, State] = {
    "ended": State((*OPENED, END), Phase.ENDED, NOTHING),
    "ended in load": State((*OPENED, Acknowledge(), END), Phase.ENDED, NOTHING),
    "ended after a transaction": State((*COMMITTED, END), Phase.ENDED, NOTHING),
}
ALL_STATES = STATES | UNACKNOWLEDGED_ENDS

ALLOWED = [
    pytest.param(state, message, id=f"{name}: {kind.__name__}")
    for (name, state), (kind, message) in itertools.product(STATES.items(), EXAMPLES.items())
    if kind.__name__ in state.allowed
]
REFUSED = [
    pytest.param(state, message, id=f"{name}: {kind.__name__}")
    for (name, state), (kind, message) in itertools.product(ALL_STATES.items(), EXAMPLES.items())
    if kind.__name__ not in state.allowed
    and not (state in UNACKNOWLEDGED_ENDS.values() and kind is Acknowledged)
]


@pytest.mark.parametrize(("state", "message"), ALLOWED)
def test_what_a_phase_allows_is_accepted(state: State, message: Message) -> None:
    phases = walk(state.path)
    assert phases.phase is state.phase
    phases.observe(message)
    assert phases.phase is not Phase.ENDED


@pytest.mark.parametrize(("state", "message"), REFUSED)
def test_what_a_phase_does_not_allow_is_refused(state: State, message: Message) -> None:
    phases = walk(state.path)
    transaction = phases.transaction
    error = refusal(phases, message)
    assert error.message_name == type(message).__name__
    assert error.phase == state.phase
    assert error.expected == state.expected
    assert str(error) == (
        f"{error.message_name} is refused in phase {error.phase} of transaction {transaction}: "
        f"expected {error.expected}"
    )


@pytest.mark.parametrize("state", ALL_STATES.values(), ids=ALL_STATES)
def test_the_stream_ends_only_where_no_transaction_is_in_the_middle(state: State) -> None:
    phases = walk(state.path)
    assert phases.at_rest == state.may_end
    if state.may_end:
        phases.end()
    else:
        error = refusal(phases, END)
        assert error.message_name == "the end of the stream"
        assert error.phase == state.phase
        assert error.expected == state.expected
    assert phases.phase is Phase.ENDED
    assert not phases.at_rest


@pytest.mark.parametrize("state", ALL_STATES.values(), ids=ALL_STATES)
@pytest.mark.parametrize("after", [*EXAMPLES.values(), END], ids=lambda step: type(step).__name__)
def test_after_a_refusal_everything_is_refused(state: State, after: Step) -> None:
    phases = walk(state.path)
    refusal(phases, load(1, binding=-1) if state.phase is not Phase.ENDED else OPEN)
    error = refusal(phases, after)
    assert error.phase == Phase.ENDED
    assert error.expected == NOTHING


@pytest.mark.parametrize("state", UNACKNOWLEDGED_ENDS.values(), ids=UNACKNOWLEDGED_ENDS)
def test_only_one_acknowledged_follows_a_clean_end(state: State) -> None:
    phases = walk(state.path)
    phases.observe(Acknowledged())
    refusal(phases, Acknowledged())


def test_acknowledged_is_known_until_the_next_transaction() -> None:
    phases = walk(OPENED)
    assert not phases.acknowledged
    phases.observe(Acknowledged())
    assert phases.acknowledged
    assert not walk(COMMITTED).acknowledged


ACKNOWLEDGED_ONLY: Path = (*OPENED, Acknowledged())
DELTA_BINDING = "clicks -> clicks"


def with_keys(message: Load | Loaded | Store, batch: pa.RecordBatch) -> Load | Loaded | Store:
    return replace(message, keys=batch)


def ids(array: pa.Array, name: str = "id") -> pa.RecordBatch:
    return pa.record_batch({name: array})


NULL_KEY = ids(pa.array([None], pa.int64()))
SWAPPED_KEYS = keys(1, binding=WITHOUT_DOCUMENT).select(["day", "guest"])

# Path, the message that is refused after it, and what the refusal says was expected.
REFUSALS: dict[str, tuple[Path, Step, str]] = {
    "a second Open": (OPENED, OPEN, "Acknowledge or Acknowledged"),
    "a second Open in the next transaction": (COMMITTED, OPEN, "Acknowledge or Acknowledged"),
    "Load before Acknowledge": (OPENED, load(1), "Acknowledge or Acknowledged"),
    "Load between Acknowledged and Acknowledge": (ACKNOWLEDGED_ONLY, load(1), "Acknowledge"),
    "Flush before Acknowledged": ((*OPENED, Acknowledge(), load(1)), Flush(), "Load or Acknowledged"),
    "Flush without loads before Acknowledged": ((*OPENED, Acknowledge()), Flush(), "Load or Acknowledged"),
    "Flush twice": (TO_FLUSH, Flush(), "Loaded or Flushed"),
    "Load after Flush": (TO_FLUSH, load(3), "Loaded or Flushed"),
    "Loaded before Acknowledged": (
        (*OPENED, Acknowledge(), load(1)),
        loaded(1),
        "Load or Acknowledged",
    ),
    "Loaded before Acknowledge": (ACKNOWLEDGED_ONLY, loaded(1), "Acknowledge"),
    "Loaded after Flushed": (TO_STORE, loaded(2), "Store or StartCommit"),
    "Acknowledged twice": (TO_LOAD, Acknowledged(), "Load, Loaded or Flush"),
    "Acknowledged twice before Acknowledge": (ACKNOWLEDGED_ONLY, Acknowledged(), "Acknowledge"),
    "Acknowledged after Flush": (TO_FLUSH, Acknowledged(), "Loaded or Flushed"),
    "Acknowledge twice": (TO_LOAD, Acknowledge(), "Load, Loaded or Flush"),
    "Store before Flush": ((*TO_LOAD, load(1)), store(1), "Load, Loaded or Flush"),
    "Store before Flushed": (TO_FLUSH, store(1), "Loaded or Flushed"),
    "StartCommit before Flushed": (TO_FLUSH, StartCommit({"n": 1}), "Loaded or Flushed"),
    "StartCommit twice": ((*TO_STORE, StartCommit({"n": 1})), StartCommit({"n": 1}), "StartedCommit"),
    "Store after StartCommit": ((*TO_STORE, StartCommit({"n": 1})), store(3), "StartedCommit"),
    "StartedCommit before StartCommit": (TO_STORE, StartedCommit(), "Store or StartCommit"),
    "StartedCommit twice": (COMMITTED, StartedCommit(), "Acknowledge or Acknowledged"),
    "Loaded for a key never asked for": (
        (*TO_LOAD, load(1)),
        loaded(2),
        "keys that were asked for, not (2)",
    ),
    "Loaded for a key never asked for, among others": (
        (*TO_LOAD, load(1, 2, 3)),
        loaded(3, 4, 1),
        "keys that were asked for, not (4)",
    ),
    "Loaded where nothing was asked for": (TO_LOAD, loaded(1), "keys that were asked for, not (1)"),
    "Loaded for a key of another binding": (
        (*TO_LOAD, load(1)),
        loaded(1, binding=DELTA),
        "keys that were asked for, not (1)",
    ),
    "Loaded for a key of the transaction before": (
        (*COMMITTED, Acknowledge(), Acknowledged(), load(3)),
        loaded(1),
        "keys that were asked for, not (1)",
    ),
    "Loaded for a key twice in a message": (
        TO_FLUSH,
        loaded(2, 1, 2),
        "each key once, and (2) came before",
    ),
    "Loaded for a key twice": ((*TO_FLUSH, loaded(1)), loaded(2, 1), "each key once, and (1) came before"),
    "Loaded for a key twice, before and after Flush": (
        (*TO_LOAD, load(1), loaded(1), Flush()),
        loaded(1),
        "each key once, and (1) came before",
    ),
    "a key loaded twice in a message": (TO_LOAD, load(1, 2, 1), "each key once, and (1) came before"),
    "a key loaded twice": ((*TO_LOAD, load(1, 2)), load(3, 2), "each key once, and (2) came before"),
    "a key loaded twice, before and after Acknowledged": (
        (*OPENED, Acknowledge(), load(1), Acknowledged()),
        load(1),
        "each key once, and (1) came before",
    ),
    "a composite key loaded twice": (
        (*TO_LOAD, load(1, binding=WITHOUT_DOCUMENT)),
        load(2, 1, binding=WITHOUT_DOCUMENT),
        "each key once, and ('guest 1', '2026-11-16') came before",
    ),
    "a key stored twice in a message": (TO_STORE, store(5, 5), "each key once, and (5) came before"),
    "a key stored twice": ((*TO_STORE, store(5)), store(6, 5), "each key once, and (5) came before"),
    "a delta's key stored twice": (
        (*TO_STORE, store(5, binding=DELTA)),
        store(5, binding=DELTA),
        "each key once, and (5) came before",
    ),
    "Load for a binding of delta updates": (
        TO_LOAD,
        load(1, binding=DELTA),
        f"no Load at all for {DELTA_BINDING}, which takes delta updates",
    ),
    "an empty Load for a binding of delta updates": (
        TO_LOAD,
        load(binding=DELTA),
        f"no Load at all for {DELTA_BINDING}, which takes delta updates",
    ),
    "Load for a negative binding": (TO_LOAD, Load(-1, keys(1)), "a binding from 0 to 2, not -1"),
    "Load for a binding too many": (TO_LOAD, Load(3, keys(1)), "a binding from 0 to 2, not 3"),
    "Loaded for a binding too many": (
        TO_FLUSH,
        Loaded(3, keys(1), documents(1)),
        "a binding from 0 to 2, not 3",
    ),
    "Store for a negative binding": (
        TO_STORE,
        replace(store(1), binding=-1),
        "a binding from 0 to 2, not -1",
    ),
    "Store for a binding too many": (TO_STORE, replace(store(1), binding=3), "a binding from 0 to 2, not 3"),
    "a null key loaded": (TO_LOAD, with_keys(load(1), NULL_KEY), "no null in key field 'id'"),
    "a document for a null key": (TO_FLUSH, with_keys(loaded(1), NULL_KEY), "no null in key field 'id'"),
    "a null key stored": (TO_STORE, with_keys(store(1), NULL_KEY), "no null in key field 'id'"),
    "a key that is null in part": (
        TO_LOAD,
        Load(
            WITHOUT_DOCUMENT,
            pa.record_batch({"guest": ["a"], "day": pa.array([None], pa.date32())}),
        ),
        "no null in key field 'day'",
    ),
    "keys of another name": (
        TO_LOAD,
        with_keys(load(1), ids(pa.array([1]), "it")),
        "keys of (id int64), not (it int64)",
    ),
    "keys of another type": (
        TO_FLUSH,
        with_keys(loaded(1), ids(pa.array(["1"]))),
        "keys of (id int64), not (id string)",
    ),
    "keys of a narrower type": (
        TO_STORE,
        with_keys(store(1), ids(pa.array([1], pa.int32()))),
        "keys of (id int64), not (id int32)",
    ),
    "keys in another order": (
        TO_LOAD,
        Load(WITHOUT_DOCUMENT, SWAPPED_KEYS),
        "keys of (guest string, day date32[day]), not (day date32[day], guest string)",
    ),
    "keys with a column too few": (
        TO_LOAD,
        Load(WITHOUT_DOCUMENT, SWAPPED_KEYS.select(["guest"])),
        "keys of (guest string, day date32[day]), not (guest string)",
    ),
    "keys with a column too many": (
        TO_LOAD,
        Load(STANDARD, pa.record_batch({"id": pa.array([1]), "more": pa.array([1])})),
        "keys of (id int64), not (id int64, more int64)",
    ),
    "values of another order": (
        TO_STORE,
        replace(store(1), values=values(1).select(["open", "owner"])),
        "values of (owner string, open bool), not (open bool, owner string)",
    ),
    "values of another type": (
        TO_STORE,
        replace(store(1), values=pa.record_batch({"owner": pa.array([b"x"]), "open": pa.array([True])})),
        "values of (owner string, open bool), not (owner binary, open bool)",
    ),
    "values missing": (
        TO_STORE,
        replace(store(1), values=values(1, binding=DELTA)),
        "values of (owner string, open bool), not ()",
    ),
    "values where there are none": (
        TO_STORE,
        replace(store(1, binding=DELTA), values=values(1)),
        "values of (), not (owner string, open bool)",
    ),
    "values for fewer keys": (TO_STORE, replace(store(1, 2), values=values(1)), "values for 2 keys, not 1"),
    "a document missing in Loaded": (
        TO_FLUSH,
        replace(loaded(1, 2), documents=documents(1)),
        "a document for each of 2 keys",
    ),
    "a document too many in Loaded": (
        TO_FLUSH,
        replace(loaded(1), documents=documents(1, 2)),
        "a document for each of 1 keys",
    ),
    "a null document in Loaded": (
        TO_FLUSH,
        replace(loaded(1), documents=pa.array([None], pa.string())),
        "a document for each of 1 keys",
    ),
    "documents of another type in Loaded": (
        TO_FLUSH,
        replace(loaded(1), documents=documents(1).cast(pa.large_string())),
        "documents in one array of string, not large_string",
    ),
    "documents in several arrays": (
        TO_FLUSH,
        replace(loaded(1), documents=pa.chunked_array([documents(1)])),
        "documents in one array of string, not string",
    ),
    "an empty document in Loaded": (
        TO_FLUSH,
        replace(loaded(1, 2), documents=pa.array(["{}", ""])),
        "documents that are JSON objects, not empty text",
    ),
    "an empty document in Store": (
        TO_STORE,
        replace(store(1), documents=pa.array([""])),
        "documents that are JSON objects, not empty text",
    ),
    "an empty runtime checkpoint": (
        TO_STORE,
        StartCommit({}),
        "a runtime checkpoint, since an empty one means the beginning",
    ),
    "documents missing in Store": (
        TO_STORE,
        replace(store(1), documents=None),
        "documents exactly where the binding stores them",
    ),
    "documents where none are stored": (
        TO_STORE,
        replace(store(1, binding=WITHOUT_DOCUMENT), documents=documents(1)),
        "documents exactly where the binding stores them",
    ),
    "a document missing in Store": (
        TO_STORE,
        replace(store(1, 2), documents=documents(1)),
        "a document for each of 2 keys",
    ),
    "a null document in Store": (
        TO_STORE,
        replace(store(1, 2), documents=pa.array(["{}", None])),
        "a document for each of 2 keys",
    ),
    "documents of another type in Store": (
        TO_STORE,
        replace(store(1), documents=documents(1).cast(pa.binary())),
        "documents in one array of string, not binary",
    ),
    "'exists' missing": (
        TO_STORE,
        replace(store(1, 2), exists=flags(True)),
        "true or false in 'exists' for each key",
    ),
    "an 'exists' too many": (
        TO_STORE,
        replace(store(1), exists=flags(True, False)),
        "true or false in 'exists' for each key",
    ),
    "a null 'exists'": (
        TO_STORE,
        replace(store(1), exists=flags(None)),
        "true or false in 'exists' for each key",
    ),
    "numbers in 'exists'": (
        TO_STORE,
        replace(store(1), exists=pa.array([1])),
        "true or false in 'exists' for each key",
    ),
}


@pytest.mark.parametrize(("path", "step", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_refused_is_named(path: Path, step: Step, expected: str) -> None:
    phases = walk(path)
    phase = phases.phase
    error = refusal(phases, step)
    assert error.expected == expected
    assert error.message_name == type(step).__name__
    assert error.phase == phase


def test_a_binding_whose_key_cannot_be_one_ends_the_stream_too() -> None:
    amounts = Collection("amounts", ("/at",), {"required": ["at"], "properties": {"at": {"type": "number"}}})
    materialization = Materialization("amounts", "memory", {}, (Binding(amounts, {}, ("amounts",)),))
    phases = walk((Open(materialization, "1", FULL_RANGE), Opened(), Acknowledge()))
    with pytest.raises(SchemaError):
        phases.observe(Load(0, keys(1)))
    assert refusal(phases, Acknowledged()).expected == NOTHING


def test_a_long_key_is_shortened_in_the_error() -> None:
    guest = "x" * 1000
    rows = pa.record_batch({"guest": [guest], "day": keys(1, binding=WITHOUT_DOCUMENT)["day"]})
    phases = walk((*TO_LOAD, Load(WITHOUT_DOCUMENT, rows)))
    assert len(str(refusal(phases, Load(WITHOUT_DOCUMENT, rows)))) < 250


LARGEST = "\u00e9" * (MAX_DOCUMENT_BYTES // 2)  # in bytes, not in characters


@pytest.mark.parametrize(
    ("path", "message"),
    [(TO_FLUSH, loaded(1)), (TO_STORE, store(1))],
    ids=["Loaded", "Store"],
)
def test_a_document_has_at_most_16_mib(path: Path, message: Loaded | Store) -> None:
    assert MAX_DOCUMENT_BYTES == 16 * 1024 * 1024
    walk(path).observe(replace(message, documents=pa.array([LARGEST])))
    error = refusal(walk(path), replace(message, documents=pa.array([LARGEST + "x"])))
    assert error.expected == "documents of at most 16777216 bytes, not 16777217"


@pytest.mark.parametrize("state", ALL_STATES.values(), ids=ALL_STATES)
def test_what_a_connector_owes(state: State) -> None:
    owed = {Phase.OPENING: "Opened", Phase.FLUSH: "Flushed", Phase.COMMIT: "StartedCommit"}
    assert walk(state.path).owed == owed.get(state.phase, "")


def test_columns_are_known_by_name_and_type_alone() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata={"a": "b"})], metadata={"c": "d"})
    walk(TO_LOAD).observe(Load(STANDARD, pa.record_batch([pa.array([1])], schema=schema)))
