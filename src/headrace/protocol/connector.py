"""The contract of a connector, and the runtime's view of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from headrace.protocol.channel import Channel
from headrace.protocol.loop import StreamEnded, as_headrace_error
from headrace.protocol.messages import Applied, Apply, Spec, Specified, Validate, Validated
from headrace.protocol.stream import ConnectorStream, RuntimeStream


class Connector(ABC):
    """Code that keeps materializations in one kind of endpoint.

    One instance serves any number of calls, from several threads at once and for different endpoints:
    keep no state in it between calls. Errors are raised as `headrace.errors`: a `Transient` one may be
    tried again from the last checkpoint, a `Terminal` one stops the materialization and is for its owner.
    Messages of errors and logs must not hold secrets of the endpoint's configuration.
    """

    @abstractmethod
    def spec(self, request: Spec) -> Specified:
        """Returns what a user has to configure.

        Called at any time, any number of times; must not touch the endpoint.
        """

    @abstractmethod
    def validate(self, request: Validate) -> Validated:
        """Returns for each field of each binding whether it can, should or must be stored, and why.

        Called before `apply` whenever the configuration or a schema has changed, and possibly many times
        for one that is never applied. It connects and looks, and must change nothing. A configuration
        that cannot work at all is an error; a field that cannot is a constraint. The guarantee of the whole
        pipeline is computed from each binding's `delivery`, so promise there what survives a crash anywhere.
        """

    @abstractmethod
    def apply(self, request: Apply) -> Applied:
        """Makes the endpoint ready: creates tables, adds columns.

        Called before every start, with the fields already chosen, and again after a crash at any point of it:
        do all or nothing, and nothing if everything is there already. With `dry_run` only report what would
        be done. Transactions of an older version may still be running meanwhile.
        """

    @abstractmethod
    def transactions(self, stream: ConnectorStream) -> None:
        """Serves one stream of transactions, from Open to the end of the stream.

        Called once per stream, on a thread of its own; compose it from `headrace.protocol.loop`. Several
        streams of one materialization run at once, each for its own range of keys. An older stream for the
        same keys may still be alive somewhere, unaware that it was replaced: a connector that keeps the
        runtime checkpoint itself must fence it off. The stream can break at any point without notice; a
        transaction whose StartCommit has not arrived must then have no effect.

        Not guaranteed: that a transaction is not empty, that `exists` is true for a row that is there (the
        runtime skips loads that the schema makes unnecessary), or that Acknowledge ever comes.
        """


class ConnectorClient(Protocol):
    """A connector as the runtime sees it, in whatever process it runs."""

    def spec(self, request: Spec) -> Specified: ...

    def validate(self, request: Validate) -> Validated: ...

    def apply(self, request: Apply) -> Applied: ...

    def transactions(self) -> RuntimeStream: ...


def serve_transactions(connector: Connector, channel: Channel) -> None:
    """Runs a connector's loop at its end of a channel, and ends the channel in the same way, cleanly or with
    the error."""
    try:
        connector.transactions(ConnectorStream(channel))
    except StreamEnded:
        pass
    except BaseException as error:  # noqa: BLE001 - the runtime must hear of whatever it is, or it waits
        channel.fail(as_headrace_error(error))
        return
    channel.end_responses()
