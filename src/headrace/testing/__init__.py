"""Tools with which the author of a connector tests it.

`Runtime` drives a connector with the reference reductions, transaction by transaction; `RuntimeStream`, from
a client's `transactions()`, drives it by hand, message by message. `Observed` watches a connector's messages,
and with `kill_at` or `stop_at` kills or freezes its process at one of them. The conformance suite is
`headrace.testing.conformance.ConnectorConformance`, a class of pytest tests to inherit from. `MemorySink` is
a two-phase-commit sink whose `MemoryTarget` outlives it, for tests of what runs sinks.
"""

from headrace.protocol.grpc import GrpcConnector, GrpcServer
from headrace.protocol.in_process import InProcess
from headrace.protocol.stream import RuntimeStream
from headrace.testing.by_hand import UncheckedStream
from headrace.testing.faults import Observed, kill_at, stop_at
from headrace.testing.memory_sink import MemorySink, MemoryTarget
from headrace.testing.processes import ConnectorProcess
from headrace.testing.recovery_log import FileLog, MemoryLog, RecoveryLog
from headrace.testing.runtime import Runtime, combine, materialization_of

__all__ = [
    "ConnectorProcess",
    "FileLog",
    "GrpcConnector",
    "GrpcServer",
    "InProcess",
    "MemoryLog",
    "MemorySink",
    "MemoryTarget",
    "Observed",
    "RecoveryLog",
    "Runtime",
    "RuntimeStream",
    "UncheckedStream",
    "combine",
    "kill_at",
    "materialization_of",
    "stop_at",
]
