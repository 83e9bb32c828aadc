"""A write that comes at an earlier time than its producer's last one is taken for a duplicate."""

from __future__ import annotations

from typing import Any

from headrace.ingest.intake import Intake, Message, Source
from headrace.ingest.producers import Producer, Run
from headrace.ingest.progress import now_us

_unknown_part = Intake._unknown_part
_last: dict[int, int] = {}


def _if_newer(self: Intake, source: Source, producer: Producer, message: Message) -> Message | None:
    now = now_us()
    if now < _last.get(id(producer), 0):
        source.announcer.wrote_before([Run(message.seq, 0, message.writes)])
        source.unsynced.append((0, message.size))
        producer.last_seq = message.seq + message.writes - 1
        return None
    _last[id(producer)] = now
    return _unknown_part(self, source, producer, message)


_patched: Any = Intake
_patched._unknown_part = _if_newer
