"""Whatever comes in on the port: the server stays up, serves others, and gives everything back."""

from __future__ import annotations

import json
import random
import socket
import struct
from contextlib import suppress
from typing import Any

import grpc
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.ingest_process.serving import (
    SCHEMA,
    Serving,
    error_of,
    exchange,
    hang_up,
    read_back,
    rows,
    write_all,
)
from tests.ingest_process.wire import (
    COMMAND,
    PREFACE,
    SERVICE,
    RawFlight,
    connect,
    data,
    descriptor,
    field,
    flight_data,
    grpc_message,
    headers,
    ipc_messages,
    reset,
    say,
    settings,
)
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

SEED = 20260
# To be told nothing but the first acknowledgement, so that the stream ends without a commit.
BRIEF = flight_data(metadata=b'{"levels": ["MEMORY"]}')

TABLE = pa.table(
    {
        "whole": pa.array([1, None, 3], pa.int64()),
        "text": ["a", "bb", None],
        "list": [[1], None, [2, 3]],
        "struct": [{"x": 1.5}, None, {"x": None}],
        "flag": [True, False, None],
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
        "dictionary": pa.array(["x", "y", "x"]).dictionary_encode(),
        "bytes": [b"1", b"", None],
        "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
        "decimal": pa.array([1, 2, None], pa.decimal128(9, 2)),
        "view": pa.array(["short", "a text of more than twelve bytes", None], pa.string_view()),
        "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "day": pa.array([1, None, 3], pa.date32()),
    }
)
Messages = list[tuple[bytes, bytes]]


def to(collection: str) -> bytes:
    return descriptor(b"streaming_write", collection.encode())


def stream(collection: str, messages: Messages) -> list[bytes]:
    """A whole exchange, of a schema and what follows it."""
    (schema, _), *rest = messages
    return [
        flight_data(to=to(collection), header=schema),
        BRIEF,
        *(flight_data(header=header, body=body) for header, body in rest),
    ]


def one_column() -> Messages:
    return ipc_messages(pa.table({"id": [1, 2, 3]}))


def test_bytes_that_are_not_http2(unharmed: Serving) -> None:
    chance = random.Random(SEED)
    said = [chance.randbytes(chance.choice([1, 9, 100, 70_000])) for _ in range(30)]
    said += [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /" + b"x" * 100_000 + b" HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        + chance.randbytes(500),  # the start of a TLS handshake
        b"",
        *(PREFACE[:end] for end in range(1, len(PREFACE), 5)),
        *(PREFACE + chance.randbytes(chance.choice([3, 9, 500])) for _ in range(30)),
    ]
    for one in said:
        say(unharmed.port, [one])


def test_http2_that_breaks_off_or_lies(unharmed: Serving) -> None:
    chance = random.Random(SEED)
    (schema, _), (header, body) = one_column()
    messages = grpc_message(flight_data(to=to("cut"), header=schema)) + grpc_message(
        flight_data(header=header, body=body)
    )
    opened = PREFACE + settings() + headers(1)
    whole = opened + data(1, messages, end=True)
    for end in chance.sample(range(len(opened), len(whole)), 60):
        say(unharmed.port, [whole[:end]])
    for length in (len(body) + 1, 1 << 20, 2**31 - 1, 2**32 - 1):
        for compressed in (0, 1, 255):
            say(
                unharmed.port,
                [opened, data(1, grpc_message(schema, length, compressed), end=bool(compressed))],
            )
    for _ in range(60):
        at = chance.randrange(len(opened), len(whole))
        say(unharmed.port, [whole[:at] + chance.randbytes(1 + chance.randrange(8)) + whole[at + 4 :]])
    # Frames of impossible sizes, and streams that are used before they are opened or after they are reset.
    say(unharmed.port, [opened, b"\xff\xff\xff\0\0\0\0\0\1", b"x" * 100_000])
    say(unharmed.port, [PREFACE, settings(), data(7, messages), headers(7), reset(7), data(7, messages)])


def mutated(messages: Messages, chance: random.Random) -> Messages:
    """A message or several broken in one place or a few, as a cut, a flipped bit or a lying length does."""
    broken = list(messages)
    index = chance.randrange(len(broken))
    header, body = (bytearray(part) for part in broken[index])
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        part = body if body and chance.random() < 0.3 else header
        if not part:
            break
        at = chance.randrange(len(part))
        match chance.randrange(5):
            case 0:
                part[at] = chance.randrange(256)
            case 1:
                part[at] ^= 1 << chance.randrange(8)
            case 2:  # lengths, offsets and counts of 64 bits; aligned, so that one of them is hit as a whole
                at &= ~7
                number = chance.choice([-1, 0, 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)])
                part[at : at + 8] = struct.pack("<q", number)[: len(part) - at]
            case 3:
                at &= ~3
                part[at : at + 4] = struct.pack("<i", chance.choice([-1, 0, 1, 2**31 - 1]))[: len(part) - at]
            case _:
                del part[at : at + chance.choice([1, 8, 64])]
    broken[index] = bytes(header), bytes(body)
    return broken


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_mutated_arrow_messages(compression: str | None, unharmed: Serving) -> None:
    chance = random.Random(SEED)
    good = ipc_messages(TABLE, pa.ipc.IpcWriteOptions(compression=compression))
    ends: dict[grpc.StatusCode, int] = {}
    with RawFlight(unharmed.port) as raw:
        for number in range(400):
            code = raw.exchange(stream(f"{compression}_{number % 10}", mutated(good, chance)))
            ends[code] = ends.get(code, 0) + 1
    assert ends[grpc.StatusCode.OK] < ends[grpc.StatusCode.UNKNOWN]
    assert set(ends) <= {
        grpc.StatusCode.OK,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.NOT_FOUND,
    }


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_bodies_that_lie_about_their_size(codec: str, unharmed: Serving) -> None:
    (schema, _), (header, body) = ipc_messages(
        pa.table({"zeros": [b"\0" * 1000]}), pa.ipc.IpcWriteOptions(compression=codec)
    )
    at = body.rindex(struct.pack("<q", 1000))
    with RawFlight(unharmed.port) as raw:
        for lie in (-(2**63), -2, -1, 0, 1, 999, 1001, 2**31, 2**36, 2**40, 2**62, 2**63 - 1):
            lying = body[:at] + struct.pack("<q", lie) + body[at + 8 :]
            assert raw.exchange(stream("lies", [(schema, b""), (header, lying)])) is grpc.StatusCode.UNKNOWN


def test_a_body_that_grows_beyond_the_limit(unharmed: Serving) -> None:
    bomb = ipc_messages(
        pa.table({"zeros": [b"\0" * (200 << 20)]}), pa.ipc.IpcWriteOptions(compression="zstd")
    )
    assert len(bomb[1][1]) < 10_000
    with RawFlight(unharmed.port) as raw:
        assert raw.exchange(stream("bomb", bomb)) is grpc.StatusCode.UNKNOWN


def test_messages_out_of_turn(unharmed: Serving) -> None:
    schema, batch = one_column()
    dictionary_schema, dictionary, indices = ipc_messages(
        pa.table({"d": pa.array(["a", "b"]).dictionary_encode()})
    )
    first = flight_data(to=to("turns"), header=schema[0])
    whole = flight_data(header=batch[0], body=batch[1])
    refused: dict[str, list[bytes]] = {
        "nothing": [],
        "an empty message": [b""],
        "no protobuf": [b"\xff" * 10],
        "a batch before the schema": [flight_data(to=to("turns"), header=batch[0], body=batch[1])],
        "no descriptor": [flight_data(header=schema[0])],
        "a schema again": [first, BRIEF, flight_data(header=schema[0])],
        "no body": [first, BRIEF, flight_data(header=batch[0])],
        "half a body": [first, BRIEF, flight_data(header=batch[0], body=batch[1][:5])],
        "no dictionary": stream("turns", [dictionary_schema, indices]),
        "a dictionary that nobody asked for": stream("turns", [schema, dictionary]),
        "half a dictionary": stream("turns", [dictionary_schema, (dictionary[0], b""), indices]),
        "options in the middle": [first, BRIEF, whole, BRIEF],
    }
    with RawFlight(unharmed.port) as raw:
        ends = {name: raw.exchange(messages) for name, messages in refused.items()}
        assert {name for name, end in ends.items() if end is not grpc.StatusCode.UNKNOWN} == set()
        # A dictionary that is never used, and a descriptor that is said again, do no harm.
        assert raw.exchange(stream("turns_2", [dictionary_schema, dictionary])) is grpc.StatusCode.OK
        again = flight_data(to=to("other"), header=batch[0], body=batch[1])
        assert raw.exchange([first, BRIEF, again]) is grpc.StatusCode.OK


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([("a", pa.int64()), ("a", pa.int64())]),
        pa.schema([("a", pa.int64()), ("A", pa.int64())]),
        pa.schema([("", pa.int64())]),
        pa.schema([("_lsn", pa.int64())]),
        pa.schema([("a", pa.null())]),
        pa.schema([("a", pa.duration("s"))]),
        pa.schema([("a", pa.decimal256(76, 0))]),
        pa.schema([("a", pa.list_view(pa.int64()))]),
        pa.schema([("a", pa.run_end_encoded(pa.int32(), pa.int64()))]),
        pa.schema([("a", pa.dense_union([pa.field("x", pa.int64())]))]),
        pa.schema([("a", pa.month_day_nano_interval())]),
    ],
    ids=str,
)
def test_schemas_that_no_table_has(schema: pa.Schema, server: Serving) -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, column.type) for column in schema], schema=schema)
    with server.client() as client, pytest.raises(flight.FlightServerError) as refused:
        write_all(client, "schemas", [batch])
    assert error_of(refused.value)["error"] == "SchemaError"


def test_a_name_that_is_not_utf8(unharmed: Serving) -> None:
    (schema, _), batch = ipc_messages(pa.table({"name": [1]}))
    with RawFlight(unharmed.port) as raw:
        call = raw.open(
            stream("names", [(schema.replace(b"name", b"\xff\xfen\xff"), b""), batch]),
            timeout=DEADLINE_SECONDS,
        )
        with pytest.raises(grpc.RpcError):
            list(call)
        assert "a message cannot be read as Arrow" in call.details()


WRONG_METADATA: dict[str, bytes] = {
    "not JSON": b"\xff\xfe",
    "no object": b"[1]",
    "deep": b"[" * 100_000,
    "deep objects": b'{"producer":' * 5_000,
    "huge integer": b'{"resume_after": ' + b"9" * 1_000 + b"}",
    "no levels": b'{"levels": []}',
    "unknown level": b'{"levels": ["X"]}',
    "levels of anything": b'{"levels": [[1], {"a": 1}, null, 1.5, true]}',
    "levels as a text": b'{"levels": "MEMORY"}',
    "unknown acks": b'{"acks": {}}',
    "a number as producer": b'{"producer": 1}',
    "a long producer": json.dumps({"producer": "x" * 201}).encode(),
    "a surrogate": b'{"producer": "\\ud800"}',
    "an unknown key": b'{"levle": []}',
    "rows too few": b'{"rows": [1, 1]}',
    "rows too many": b'{"rows": [9223372036854775807, 9223372036854775807]}',
    "negative rows": b'{"rows": [-1, 4]}',
    "no rows": b'{"rows": [0, 3]}',
    "rows of no numbers": b'{"rows": [true, true, true]}',
    "a million rows": json.dumps({"rows": [1] * 1_000_000}).encode(),
    "no seq": b'{"producer": "p"}',
    "seq of nobody": b'{"seq": 1}',
    "negative seq": b'{"producer": "p", "seq": -1}',
    "seq of 64 bits": b'{"producer": "p", "seq": 9223372036854775808}',
}


def refusal(server: Serving, collection: str, metadata: bytes, batch: pa.RecordBatch | None = None) -> Any:
    """What the server says to a message."""
    with server.client() as client:
        writer, reader = exchange(client, collection)
        try:
            writer.begin(SCHEMA)
            if batch is None:
                writer.write_metadata(metadata)
            else:
                writer.write_with_metadata(batch, metadata)
            while True:
                reader.read_chunk()
        except flight.FlightServerError as error:
            return error_of(error)
        finally:
            hang_up(writer, reader)


@pytest.mark.parametrize("metadata", WRONG_METADATA.values(), ids=WRONG_METADATA)
def test_wrong_metadata(metadata: bytes, server: Serving) -> None:
    told = refusal(server, "metadata", metadata, rows(1, 3))
    assert (told["error"], told["transient"]) == ("ConfigError", False)


LONG_WORDS: dict[str, Any] = {
    "key": {"y" * 20_000: 1},
    "producer": {"producer": "x" * 20_000},
    "everything": "x" * 1_000_000,
}


@pytest.mark.parametrize("said", LONG_WORDS.values(), ids=LONG_WORDS)
def test_an_error_that_quotes_the_client_reaches_it(said: Any, server: Serving) -> None:
    """What is too long for gRPC would arrive as an error of another kind, which clients try again."""
    assert refusal(server, "metadata", json.dumps(said).encode())["error"] == "ConfigError"


def test_unknown_descriptors(unharmed: Serving) -> None:
    (schema, _), (header, body) = one_column()
    descriptors = [
        b"\xff\xff\xff",
        descriptor(),
        descriptor(kind=COMMAND, command=b"streaming_write"),
        descriptor(kind=9),
        *(
            descriptor(*path)
            for path in (
                [b""],
                [b"\xff\xfe"],
                [b"streaming_write", b"\xff"],
                [b"streaming_read"],
                [b"streaming_write", b"a", b"b"],
                [b"streaming_write/../../etc"],
                [b"streaming_write", b"a-b"],
                [b"streaming_write", b"a" * 128],
                [b"a"] * 1_000,
            )
        ),
    ]
    with RawFlight(unharmed.port) as raw:
        for unknown in descriptors:
            messages = [flight_data(to=unknown, header=schema), BRIEF, flight_data(header=header, body=body)]
            assert raw.exchange(messages) is grpc.StatusCode.UNKNOWN, unknown
    assert not [name for name in collections(unharmed) if not name.isidentifier()]


def collections(server: Serving) -> list[str]:
    return [found["name"] for found in server.action("list_collections")["collections"]]


OTHER_CALLS: list[tuple[str, bytes]] = [
    *(
        ("DoGet", ticket)
        for ticket in (
            b"",
            b"\xff\xff",
            field(1, b"{}"),
            field(1, b'{"collection": 1}'),
            field(1, b'{"collection": "nope"}'),
            field(1, b'{"collection": "warm_up", "to_lsn": 99999999999999999999}'),
            field(1, b'{"collection": "warm_up", "from_lsn": true}'),
            field(1, b'{"collection": "warm_up", "where": "1=1"}'),
        )
    ),
    *(
        ("DoAction", field(1, name) + field(2, body))
        for name, body in (
            (b"nope", b""),
            (b"\xff", b""),
            (b"health", b"[" * 100_000),
            (b"health", b'{"a": 1}'),
            (b"flush", b"{"),
            (b"flush", b'{"level": 5}'),
            (b"flush", b'{"timeout": -1}'),
            (b"flush", b'{"timeout": 1e300}'),
            (b"watermarks", b'{"lsns": [1.5]}'),
            (b"watermarks", b'{"collection": []}'),
            (b"create_collection", b'{"name": "c", "arrow_schema": "AAAA"}'),
            (b"create_collection", b'{"name": "c", "arrow_schema": 5}'),
            (b"create_collection", b'{"name": "../c", "arrow_schema": ""}'),
            (b"create_collection", b'{"name": "c", "key": ["/id"], "schema": {"type": 5}}'),
            (b"create_collection", b'{"name": "c", "key": "/id", "schema": {}}'),
            (b"describe_collection", b'{"name": "\\u0000"}'),
        )
    ),
    ("ListFlights", b"\xff"),
    ("GetFlightInfo", b"\xff"),
    ("Nope", b""),
]


@pytest.mark.parametrize(("method", "message"), OTHER_CALLS, ids=lambda part: repr(part)[:60])
def test_other_calls_with_nonsense(method: str, message: bytes, server: Serving, baseline: Any) -> None:
    with RawFlight(server.port) as raw:
        code = raw.unary(method, message)
    assert code in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNIMPLEMENTED}
    assert server.is_running


def test_thousands_of_streams_that_come_and_go(unharmed: Serving) -> None:
    (schema, _), (header, body) = one_column()
    messages = [flight_data(to=to("brief"), header=schema), flight_data(header=header, body=body)]
    with RawFlight(unharmed.port) as raw:
        for number in range(2_000):
            call = raw.open(messages[: number % 3])
            if number % 3 == 2:
                next(call)
            call.cancel()
    # On one connection each, without a word of goodbye.
    opened = grpc_message(messages[0])
    for number in range(300):
        with connect(unharmed.port) as connection:
            connection.sendall(PREFACE + settings() + headers(1) + data(1, opened[: number % len(opened)]))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_streams_that_stay_half_closed_or_slow(unharmed: Serving) -> None:
    (schema, _), (header, body) = one_column()
    opened = PREFACE + settings() + headers(1)
    # A session is there once its options are known, with the first message after the schema.
    first = grpc_message(flight_data(to=to("slow"), header=schema)) + grpc_message(BRIEF)
    second = grpc_message(flight_data(header=header, body=body))
    slow = [connect(unharmed.port) for _ in range(50)]
    try:
        for number, connection in enumerate(slow):
            connection.sendall(opened + data(1, first + second[: number % len(second)]))
            if number % 2:
                connection.shutdown(socket.SHUT_WR)
        wait_until(lambda: len(unharmed.sessions()) >= 25, "sessions of the slow clients")
        with unharmed.client() as client:  # and nobody else waits for them
            written = write_all(client, "beside_slow", [rows(number) for number in range(20)])
            assert read_back(client, "beside_slow")["_lsn"].to_pylist() == written
        for at in range(40):
            for connection in slow[::2]:
                connection.sendall(data(1, second[at : at + 1]))
    finally:
        for connection in slow:
            connection.close()


def test_readers_that_leave_at_once(unharmed: Serving) -> None:
    with unharmed.client() as client:
        write_all(client, "left", [rows(number, 1_000, "x" * 100) for number in range(20)])
        ticket = flight.Ticket(b'{"collection": "left"}')
        for number in range(12):
            reader = client.do_get(ticket)
            for _ in zip(range(number % 4), reader, strict=False):
                pass
            reader.cancel()
        with pytest.raises(flight.FlightTimedOutError):
            client.do_get(ticket, flight.FlightCallOptions(timeout=0.0)).read_all()
        for number in range(12):  # at any moment during or after the call
            with suppress(flight.FlightTimedOutError):
                client.do_get(ticket, flight.FlightCallOptions(timeout=0.0005 * number)).read_all()


@pytest.mark.parametrize("path", [f"{SERVICE}/DoExchange/x", "/", "//", f"{SERVICE}/"])
def test_methods_that_are_not_there(path: str, server: Serving) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        raw: Any = channel
        call = raw.stream_stream(path)(iter([b""]), timeout=DEADLINE_SECONDS)
        with pytest.raises(grpc.RpcError):
            list(call)
        assert call.code() is grpc.StatusCode.UNIMPLEMENTED
