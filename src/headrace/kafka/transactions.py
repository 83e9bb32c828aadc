"""Finishes transactions that another process began: asks the coordinator of a transactional id directly.

What a transaction is known by is the id, the producer's id and the producer's epoch. The broker raises the
epoch whenever a producer takes the id over (`take_over`), or when it gives a transaction up that was open for
too long. So who names all three can only end the one transaction that he means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Self

from headrace.errors import ConfigError, EndpointError, EndpointUnavailable, Unauthorized
from headrace.kafka.security import Security
from headrace.kafka.wire import Connection, Reader, Writer

_METADATA, _FIND_COORDINATOR, _INIT_PRODUCER_ID, _END_TXN = 3, 10, 22, 26
_DESCRIBE_TRANSACTIONS, _LIST_TRANSACTIONS = 65, 66
_OF_TRANSACTIONS = 1  # the kind of coordinator

_ANSWER_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
_PATIENCE_SECONDS = 60.0
"""How long a coordinator may be busy with the transaction's last end, or be on its way to another broker."""

_ELSEWHERE = {14: "is loading", 15: "is not available", 16: "has moved"}
_BUSY = 51
_REFUSED = {
    29: "the topic",
    30: "the consumer group",
    31: "the cluster",
    53: "the transactional id",
}
_NOT_UNDERSTOOD = (35, 42)
_TIMEOUT_TOO_LONG = 50
_NOT_FOUND = 105
# Another epoch of the producer, another state, another producer's id, and the first again by its new name.
_NOT_OURS = (47, 48, 49, 90)


class State(StrEnum):
    """The states of a transaction, as brokers call them; any other is one that goes by."""

    ONGOING = "Ongoing"
    COMMITTING = "PrepareCommit"
    ABORTING = "PrepareAbort"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


_ENDING = (State.COMMITTING, State.ABORTING)


@dataclass(frozen=True)
class Identity:
    """Identifies a transaction, or rather a producer; ours begins one transaction in its life."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True)
class Description:
    identity: Identity
    state: str
    timeout_ms: int
    started_ms: int
    """-1 if none is open."""
    topics: Mapping[str, tuple[int, ...]]

    @property
    def is_open(self) -> bool:
        return self.state == State.ONGOING or self.state in _ENDING


class Transactions:
    """A context manager, which keeps connections while it lasts. Not for several threads."""

    def __init__(self, bootstrap: str, security: Security) -> None:
        self._bootstrap, self._security = bootstrap, security
        self._connections: dict[str, Connection] = {}
        self._coordinators: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def end(self, identity: Identity, *, commit: bool) -> bool:
        """Commits or aborts; True also if that was done before. False: it has ended otherwise, or is unknown.

        An abort does not keep its producer from beginning anew, if it is still alive: `take_over` does.
        """
        body = Writer().text(identity.transactional_id).number("q", identity.producer_id)
        body.number("h", identity.producer_epoch).number("b", int(commit))

        def once(coordinator: Connection) -> int:
            answer = coordinator.ask(_END_TXN, 1, body)
            answer.number("i")
            return answer.number("h")

        code = self._until_done(identity.transactional_id, once)
        if code in _NOT_OURS:
            return False
        self._check(code, identity.transactional_id)
        self._await_readers(identity)
        return True

    def _await_readers(self, identity: Identity) -> None:
        """The broker answers when the end is certain, and tells it to each partition only then."""
        until, pause = time.monotonic() + _PATIENCE_SECONDS, _FIRST_PAUSE
        while time.monotonic() < until:
            found = self.describe(identity.transactional_id)
            if found is None or found.identity != identity or found.state not in _ENDING:
                return
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise EndpointUnavailable(
            f"Kafka at {self._bootstrap} has not told all partitions the end of {identity.transactional_id!r}"
        )

    def take_over(self, transactional_id: str, timeout_ms: int) -> Identity:
        """Aborts what is open under the id, and fences its producer off; returns when that is done."""
        found: list[Identity] = []
        body = Writer().text(transactional_id).number("i", timeout_ms)

        def once(coordinator: Connection) -> int:
            answer = coordinator.ask(_INIT_PRODUCER_ID, 1, body)
            answer.number("i")
            code = answer.number("h")
            found[:] = [Identity(transactional_id, answer.number("q"), answer.number("h"))]
            return code

        code = self._until_done(transactional_id, once)
        if code == _TIMEOUT_TOO_LONG:
            raise timeout_too_long(timeout_ms)
        self._check(code, transactional_id)
        return found[0]

    def describe(self, transactional_id: str) -> Description | None:
        """None if the id was never used, or not for so long that the broker forgot it."""
        body = Writer().compact_length(1).compact_text(transactional_id).no_tags()
        found: list[Description] = []

        def once(coordinator: Connection) -> int:
            answer = coordinator.ask(_DESCRIBE_TRANSACTIONS, 0, body, is_flexible=True)
            answer.number("i")
            ((code, described),) = answer.compact_array(lambda: _description(answer))
            found[:] = [described]
            return code

        code = self._until_done(transactional_id, once)
        if code == _NOT_FOUND:
            return None
        self._check(code, transactional_id)
        return found[0]

    def list(self, prefix: str) -> list[str]:
        """The ids that begin so, of all brokers, whatever their state."""
        answer = self._anybody().ask(_METADATA, 1, Writer().number("i", 0))
        brokers = answer.array(lambda: _broker(answer))
        found: set[str] = set()
        for broker in brokers:
            body = Writer().compact_length(0).compact_length(0).no_tags()
            answer = self._connection(broker).ask(_LIST_TRANSACTIONS, 0, body, is_flexible=True)
            answer.number("i")
            code = answer.number("h")
            if code in _ELSEWHERE:
                raise EndpointUnavailable(f"the Kafka broker {broker} {_ELSEWHERE[code]} its transactions")
            self._check(code, prefix)
            answer.compact_array(answer.compact_text)
            found.update(answer.compact_array(partial(_listed, answer)))
        return sorted(name for name in found if name.startswith(prefix))

    def _until_done(self, transactional_id: str, once: Callable[[Connection], int]) -> int:
        """Asks until the coordinator is there and idle; returns the code that it answers then."""
        until, pause, why = time.monotonic() + _PATIENCE_SECONDS, _FIRST_PAUSE, ""
        while True:
            try:
                code = once(self._coordinator(transactional_id))
                if code != _BUSY and code not in _ELSEWHERE:
                    return code
                why = "is busy" if code == _BUSY else _ELSEWHERE[code]
                if code in _ELSEWHERE:
                    self._coordinators.pop(transactional_id, None)
            except EndpointUnavailable as error:
                self._forget(transactional_id)
                why = f"does not answer: {error.message}"
            if time.monotonic() > until:
                raise EndpointUnavailable(
                    f"Kafka at {self._bootstrap}: the coordinator of transactional id "
                    f"{transactional_id!r} {why}"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _coordinator(self, transactional_id: str) -> Connection:
        if transactional_id not in self._coordinators:
            body = Writer().text(transactional_id).number("b", _OF_TRANSACTIONS)
            answer = self._anybody().ask(_FIND_COORDINATOR, 1, body)
            answer.number("i")
            code, _ = answer.number("h"), answer.text()
            if code in _ELSEWHERE:
                raise EndpointUnavailable(f"it {_ELSEWHERE[code]}")
            self._check(code, transactional_id)
            answer.number("i")
            self._coordinators[transactional_id] = f"{answer.text()}:{answer.number('i')}"
        return self._connection(self._coordinators[transactional_id])

    def _anybody(self) -> Connection:
        """Any broker that answers."""
        if self._connections:
            return next(iter(self._connections.values()))
        failed: EndpointUnavailable | None = None
        for address in self._bootstrap.split(","):
            try:
                return self._connection(address.strip())
            except EndpointUnavailable as error:
                failed = error
        assert failed is not None
        raise failed

    def _connection(self, address: str) -> Connection:
        if address not in self._connections:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit():
                raise ConfigError(f"{address!r} is no address of a Kafka broker: write HOST:PORT")
            self._connections[address] = Connection(
                host.strip("[]"), int(port), self._security, _ANSWER_SECONDS
            )
        return self._connections[address]

    def _forget(self, transactional_id: str) -> None:
        """All of them, since we do not know which one broke."""
        self._coordinators.pop(transactional_id, None)
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _check(self, code: int, what: str) -> None:
        if code in _REFUSED:
            raise Unauthorized(
                f"Kafka at {self._bootstrap} does not let this user have {_REFUSED[code]}: {what!r}"
            )
        if code in _NOT_UNDERSTOOD:
            raise EndpointError(f"Kafka at {self._bootstrap} is too old: brokers have to be 3.0 or later")
        if code:
            raise EndpointUnavailable(f"Kafka at {self._bootstrap} answers error {code} for {what!r}")


def timeout_too_long(timeout_ms: int) -> ConfigError:
    return ConfigError(
        f"transaction.timeout.ms is {timeout_ms}, and the brokers allow less: raise their "
        "transaction.max.timeout.ms (15 minutes, if nobody did), or lower ours and recovery_time with it"
    )


def _broker(answer: Reader) -> str:
    answer.number("i")
    address = f"{answer.text()}:{answer.number('i')}"
    answer.text()  # its rack
    return address


def _listed(answer: Reader) -> str:
    name = answer.compact_text()
    answer.number("q")
    answer.compact_text()
    answer.skip_tags()
    return name


def _description(answer: Reader) -> tuple[int, Description]:
    code, name, state = answer.number("h"), answer.compact_text(), answer.compact_text()
    timeout_ms, started_ms = answer.number("i"), answer.number("q")
    identity = Identity(name, answer.number("q"), answer.number("h"))
    topics = dict(answer.compact_array(lambda: _topic(answer)))
    answer.skip_tags()
    return code, Description(identity, state, timeout_ms, started_ms, topics)


def _topic(answer: Reader) -> tuple[str, tuple[int, ...]]:
    name, partitions = answer.compact_text(), answer.compact_array(lambda: answer.number("i"))
    answer.skip_tags()
    return name, tuple(partitions)
