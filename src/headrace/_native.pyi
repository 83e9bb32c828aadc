"""The native part of Headrace: what happens to every write. Every wait is without the interpreter's lock."""

from collections.abc import Mapping
from typing import Any, final

TokenRow = tuple[str, bytes, list[str], bool, list[str]]

@final
class SealedSegment:
    """A segment file that is not written any more."""

    term: int
    number: int
    first_lsn: int
    reserved_until: int
    previous_length: int
    nonce: int
    length: int
    last_lsn: int
    last_lsns: dict[str, int]
    first_accepted_us: int | None
    has_state: bool

@final
class LogFailing:
    """The disk refuses writes, for this reason; or takes them again."""

    reason: str | None

@final
class LogFailed:
    """Nothing will be written to the log any more."""

    reason: str

@final
class AdmitQuestion:
    """May a stream of this schema write?"""

    collection: str
    schema: bytes
    producer: str
    def admit(self, kept_schema: bytes, required: list[int]) -> None: ...
    def refuse(self, error: str) -> None: ...

@final
class GreetQuestion:
    """What is a client told when its stream begins?"""

    collection: str
    resume_after: int | None
    def greet(self, committed_lsn: int, lost: list[tuple[int, int]], survives: str) -> None: ...

@final
class TokensQuestion:
    """Which tokens are good now?"""

    def answer(self, tokens: list[TokenRow] | None) -> None: ...

Event = SealedSegment | LogFailing | LogFailed | AdmitQuestion | GreetQuestion | TokensQuestion

@final
class LogHealth:
    failure: str | None
    has_failed: bool
    is_alive: bool
    beat_age: float
    waiting_bytes: int
    unsynced_since_us: int | None
    unsealed_since_us: int | None

@final
class StreamStatistics:
    writes: int
    rows: int
    bytes: int
    duplicates: int
    refused: int
    acks: int
    throttled: int
    disconnects: int

@final
class StreamDescription:
    id: int
    peer: str
    collection: str
    producer: str
    statistics: StreamStatistics
    throttled: str | None
    pending: list[int]

@final
class Log:
    """A log that is written, from when it is made until it is closed."""

    def __init__(self, config: Mapping[str, Any]) -> None: ...
    def close(self, timeout: float) -> bool: ...
    def next_event(self, timeout: float) -> Event | None: ...
    def declare(self, collection: str, encoded: bytes, timeout: float) -> str | None: ...
    def seal(self) -> None: ...
    def uploaded(self, segment: int, last_lsn: int) -> None: ...
    def committed(self, collection: str, lsn: int, snapshot_id: int | None) -> None: ...
    def segment_taken(self, number: int) -> None: ...
    def log_parts(self) -> list[tuple[int, int]]: ...
    def forget_silent(self) -> None: ...
    def refusal(self) -> str | None: ...
    def stop_accepting(self, reason: str) -> None: ...
    def set_disk_problem(self, reason: str | None) -> None: ...
    def set_backed_up(self, reason: str | None) -> None: ...
    def set_collection_refusal(self, collection: str, reason: str | None) -> None: ...
    def set_given_up(
        self,
        collection: str,
        ranges: list[tuple[int, int]],
        producers: list[tuple[str, int, list[tuple[int, int, int]]]],
        others_are_unsure: bool,
    ) -> None: ...
    def known_numbers(
        self, collection: str, ranges: list[tuple[int, int]]
    ) -> list[tuple[str, int, int, list[tuple[int, int, int]]]]: ...
    def break_off(self, collection: str, reason: str) -> None: ...
    @property
    def last_lsn(self) -> int: ...
    @property
    def local_disk(self) -> int: ...
    @property
    def object_storage(self) -> int: ...
    def committed_to(self, collection: str) -> tuple[int, int | None]: ...
    @property
    def advances(self) -> int: ...
    def wait_above(self, seen: int, timeout: float) -> int: ...
    def health(self) -> LogHealth: ...
    def streams(self) -> list[StreamDescription]: ...
    def statistics(self) -> StreamStatistics: ...
    def write_seconds(self) -> list[float]: ...
    def ack_seconds(self) -> list[float]: ...

@final
class Port:
    """A port that is open from when it is made until it is stopped."""

    def __init__(self, log: Log, config: Mapping[str, Any]) -> None: ...
    @property
    def port(self) -> int: ...
    def set_serving(self, is_serving: bool) -> None: ...
    def stop(self, timeout: float) -> None: ...
    def pulse(self) -> tuple[bool, float]: ...
    def connections(self) -> tuple[int, int, int, int]: ...
    def turned_away(self) -> tuple[int, int, int]: ...
    def unauthenticated(self) -> int: ...
    def unopened(self) -> tuple[int, int]: ...

@final
class Load:
    """A load on an Arrow Flight server, described and reported as JSON (native/load)."""

    def __new__(cls, config: str) -> Load:
        """Raises ValueError if this is no load."""

    def run(self) -> str:
        """Runs the load to its end, without the interpreter's lock. OSError: no client could begin."""

    def acknowledged(self) -> int:
        """Returns how many writes were acknowledged so far at their first tier."""

def serve_floor() -> int:
    """Starts a server that acknowledges every write and keeps nothing, and returns its port."""
