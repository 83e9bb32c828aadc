"""What the native admission takes is in the log as pyarrow would have put it there; it refuses the same."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest

from headrace.errors import SchemaError
from headrace.ingest.schemas import Adapter, storable
from tests.ingest.views import GOOD, views
from tests.ingest_process.test_committable import BATCHES, _storage
from tests.ingest_process.wire import ipc_messages
from tests.native.admission import Admission, Refused, read
from tests.native.random_arrays import LEAVES, VIEWS, batch, leaf

pytestmark = pytest.mark.processes

SEEDS = range(400)
DAY_MS = 86_400_000


def one(admission: Admission, sent: pa.RecordBatch) -> bytes | Refused:
    """What becomes of a batch."""
    kept = storable("c", sent.schema)
    (answer,) = admission.admit(ipc_messages(pa.table(sent)), kept)
    return answer


def compare(admission: Admission, sent: pa.RecordBatch, codec: str | None = None) -> None:
    """The log would have the same rows, or the client the same sentence."""
    kept = storable("c", sent.schema)
    messages = ipc_messages(pa.table(sent), pa.ipc.IpcWriteOptions(compression=codec))
    (answer,) = admission.admit(messages, kept)
    expected = adapted(sent, kept)
    if isinstance(expected, Refused):
        assert answer == expected
        return
    assert isinstance(answer, bytes), answer
    got = read(kept, [answer])
    got.validate(full=True)
    assert got.schema.equals(kept)
    assert_same(got, expected)


def adapted(sent: pa.RecordBatch, kept: pa.Schema) -> pa.RecordBatch | Refused:
    """What pyarrow makes of a batch."""
    try:
        return Adapter("c", sent.schema, kept)(sent)
    except SchemaError as error:
        return Refused("SchemaError", error.message)


def assert_same(one: pa.RecordBatch, other: pa.RecordBatch) -> None:
    for left, right in zip(one.columns, other.columns, strict=True):
        # NaN is not equal to itself.
        everything = {"window": 10_000, "container_window": 10_000}
        assert left.equals(right) or left.to_string(**everything) == right.to_string(**everything)


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
@pytest.mark.parametrize("kind", LEAVES, ids=str)
def test_every_type_is_cast_as_pyarrow_casts_it(
    kind: pa.DataType, codec: str | None, admission: Admission
) -> None:
    chance = random.Random(str(kind))
    for nulls in (0.0, 0.3, 1.0):
        column = leaf(chance, kind, 100, nulls)
        compare(admission, pa.record_batch({"a": column, "b": column.slice(0, 100)}), codec)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_batches_are_cast_as_pyarrow_casts_them(seed: int, admission: Admission) -> None:
    chance = random.Random(seed)
    compare(admission, batch(chance), chance.choice([None, None, "zstd", "lz4"]))


@pytest.mark.parametrize("name", BATCHES)
def test_what_can_be_committed_is_taken(name: str, admission: Admission) -> None:
    sent = BATCHES[name]
    columns = [_storage(column) for column in sent.columns]
    plain = pa.record_batch(columns, names=sent.schema.names)
    compare(admission, plain)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pa.array([1, 1001], pa.timestamp("ns")),
            "is timestamp[us] and the write has timestamp[ns]: "
            "Casting from timestamp[ns] to timestamp[us] would lose data: 1",
        ),
        (
            pa.array([2**62], pa.timestamp("s", "Europe/Berlin")),
            "is timestamp[us, tz=UTC] and the write has timestamp[s, tz=Europe/Berlin]: ",
        ),
        (pa.array([[1]], pa.list_(pa.time64("ns"))), "would lose data: 1"),
        (
            pa.array([2**31 * DAY_MS], pa.int64()).view(pa.date64()),
            f"Casting from date64[ms] to date32[day] would lose data: {2**31 * DAY_MS}",
        ),
        (
            pa.array([-(2**31 + 1) * DAY_MS], pa.int64()).view(pa.date64()),
            f"Casting from date64[ms] to date32[day] would lose data: {-(2**31 + 1) * DAY_MS}",
        ),
    ],
    ids=str,
)
def test_what_would_be_lost_is_refused_in_the_same_words(
    column: pa.Array, message: str, admission: Admission
) -> None:
    sent = pa.record_batch({"a": column})
    answer = one(admission, sent)
    assert isinstance(answer, Refused)
    assert message in answer.message
    compare(admission, sent)


def test_what_is_storable_is_kept_to_the_last_byte(admission: Admission) -> None:
    sent = pa.record_batch({"a": pa.array([1, None, 3]), "b": ["x", None, "yy"], "c": [[1.5], [], None]})
    kept = sent.schema
    (schema, _), (header, body) = ipc_messages(pa.table(sent))
    (answer,) = admission.admit([(schema, b""), (header, body)], kept)
    assert isinstance(answer, bytes)
    assert answer == sent.serialize().to_pybytes()
    # Names inside of lists and time zones change nothing of a batch's bytes.
    at = pa.array([[1]], pa.list_(pa.field("item", pa.timestamp("us", "Europe/Berlin"))))
    sent = pa.record_batch({"a": at})
    assert one(admission, sent) == sent.serialize().to_pybytes()


@pytest.mark.parametrize("codec", [None, "zstd"])
@pytest.mark.parametrize(
    ("column", "good", "bad", "message"),
    [
        (pa.array(["ab"]), b"ab", b"a\xff", "a text is not UTF-8"),
        (pa.array([1, None, 3]), b"\x05\0\0\0", b"\x07\0\0\0", "another number of nulls than it says"),
        (pa.array(["ab", "cd"]), b"\0\0\0\0\2\0\0\0", b"\0\0\0\0\x09\0\0\0", "do not rise"),
    ],
    ids=["text", "nulls", "offsets"],
)
def test_what_pyarrow_would_find_wrong_is_refused(
    column: pa.Array, good: bytes, bad: bytes, message: str, codec: str | None, admission: Admission
) -> None:
    sent = pa.record_batch({"a": column})
    schema, (header, body) = ipc_messages(pa.table(sent), pa.ipc.IpcWriteOptions(compression=codec))
    # Too small for a codec to gain anything, so that the bytes are there.
    assert body.count(good) == 1
    (answer,) = admission.admit([schema, (header, body.replace(good, bad))], sent.schema)
    assert isinstance(answer, Refused)
    assert message in answer.message


def test_rows_that_were_written_before_are_left_out(admission: Admission) -> None:
    chance = random.Random(7)
    for _ in range(40):
        sent = batch(chance)
        kept = storable("c", sent.schema)
        if sent.num_rows < 2 or isinstance(one(admission, sent), Refused):
            continue
        rows = chance.randrange(1, sent.num_rows)
        (answer,) = admission.admit(ipc_messages(pa.table(sent)), kept, without=rows)
        assert isinstance(answer, bytes)
        assert_same(read(kept, [answer]), Adapter("c", sent.schema, kept)(sent).slice(rows))


@pytest.mark.parametrize("column", [pa.array([1, None]), pa.array([1, None], pa.int8())], ids=str)
def test_a_null_in_a_required_column_is_refused(column: pa.Array, admission: Admission) -> None:
    before = pa.array([{"x": [1]}, None])
    sent = pa.record_batch({"before": before, "a": column})
    kept = storable("c", sent.schema)
    (answer,) = admission.admit(ipc_messages(pa.table(sent)), kept, required=[1])
    assert answer == Refused(
        "SchemaError", "collection 'c': column 'a' is required and the write has a null in it: fill it"
    )


def test_a_column_of_nulls_takes_the_type_that_is_known(admission: Admission) -> None:
    sent = pa.record_batch({"a": pa.nulls(3), "b": [1, 2, 3]})
    kept = pa.schema([("a", pa.list_(pa.string())), ("b", pa.int64())])
    (answer,) = admission.admit(ipc_messages(pa.table(sent)), kept)
    assert isinstance(answer, bytes)
    assert read(kept, [answer]).to_pydict() == {"a": [None] * 3, "b": [1, 2, 3]}


@pytest.mark.parametrize("kind", VIEWS, ids=str)
def test_dictionaries_of_views_are_written_out(kind: pa.DataType, admission: Admission) -> None:
    values = pa.array(["short", None, "more than twelve bytes"]).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1, 2], pa.int8()), values)
    answer = one(admission, pa.record_batch({"a": column}))
    assert isinstance(answer, bytes)
    kept = storable("c", pa.schema([("a", kind)]))
    long = values[2].as_py()
    assert read(kept, [answer]).to_pydict() == {"a": [long, values[0].as_py(), None, None, long]}


def test_dictionaries_grow_and_are_replaced(admission: Admission) -> None:
    schema = pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))])
    sink = pa.BufferOutputStream()
    texts = [["a"], ["a", "b"], ["c"]]
    with pa.ipc.new_stream(
        sink, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    ) as writer:
        for dictionary in texts:
            last = len(dictionary) - 1
            column = pa.DictionaryArray.from_arrays(pa.array([0, last], pa.int8()), pa.array(dictionary))
            writer.write_batch(pa.record_batch([column], schema=schema))
    messages = [
        (message.metadata.to_pybytes(), message.body.to_pybytes() if message.body is not None else b"")
        for message in pa.ipc.MessageReader.open_stream(sink.getvalue())
    ]
    kept = storable("c", schema)
    answers = admission.admit(messages, kept)
    assert [read(kept, [answer]).to_pydict()["d"] for answer in answers if isinstance(answer, bytes)] == [
        ["a", "a"],
        ["a", "b"],
        ["c", "c"],
    ]


MIB = 1 << 20


def lying(sent: pa.RecordBatch, rows: int) -> list[tuple[bytes, bytes]]:
    """Messages of a batch that says that it has so many rows."""
    messages = ipc_messages(pa.table(sent))
    header, body = messages[-1]
    true, lie = struct.pack("<q", sent.num_rows), struct.pack("<q", rows)
    return [*messages[:-1], (header.replace(true, lie), body)]


def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(admission: Admission) -> None:
    zeros = pa.record_batch({"zeros": [b"\0" * (16 * MIB)]})
    texts = pa.array(["x" * 100_000])
    many = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int8()), texts)
    shared = views(*[GOOD] * 40_000)
    before = peak(admission)
    for codec in ("zstd", "lz4"):
        messages = ipc_messages(pa.table(zeros), pa.ipc.IpcWriteOptions(compression=codec))
        refuses(admission, messages, zeros.schema)
    for column in (many, shared):
        sent = pa.record_batch({"a": column})
        refuses(admission, ipc_messages(pa.table(sent)), sent.schema)
    # Rows that take no bytes at all.
    for column, kept in (
        (pa.nulls(77), pa.schema([("a", pa.string())])),
        (pa.array([[]] * 77, pa.list_(pa.int64(), 0)), pa.schema([("a", pa.list_(pa.int64()))])),
    ):
        for rows in (1 << 30, 1 << 40, (1 << 63) - 1):
            sent = pa.record_batch({"a": column})
            (answer,) = admission.admit(lying(sent, rows), kept, most=MIB)
            assert isinstance(answer, Refused)
            assert answer.error in ("ConfigError", "SchemaError")
    assert peak(admission) - before < 8 * MIB


def refuses(admission: Admission, messages: list[tuple[bytes, bytes]], schema: pa.Schema) -> None:
    *_, answer = admission.admit(messages, storable("c", schema), most=MIB)
    assert isinstance(answer, Refused)
    assert answer.error == "ConfigError"
    assert "and may have 1,048,576: split it" in answer.message


def peak(admission: Admission) -> int:
    """The most memory that the process has had."""
    with open(f"/proc/{admission.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
