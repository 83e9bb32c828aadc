"""How one sink's own things are called in an Iceberg table that others may write to as well."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

from headrace.model.checkpoints import JsonObject, to_json
from headrace.sinks.iceberg_tables import CHECKPOINT, EPOCH, ID, REWOUND, SINK, WRITER, State, fence_of

PREFIX = "headrace-"
"""What all that we stage is called by."""
_EPOCHS = "headrace.epoch/"


@dataclass(frozen=True)
class Names:
    writer: str
    sink: str

    @property
    def _own(self) -> str:
        # Quoted, so that no name begins as another one does.
        return f"{quote(self.writer, safe='')}/{quote(self.sink, safe='')}"

    @property
    def epoch(self) -> str:
        """The property that tells the last epoch."""
        return f"{_EPOCHS}{self._own}"

    @property
    def checkpoint(self) -> str:
        """The property that tells that epoch's runtime checkpoint."""
        return f"headrace.checkpoint/{self._own}"

    @property
    def rewound(self) -> str:
        """The property that tells the fence of who went back last; all that was staged before it is void."""
        return f"headrace.rewound/{self._own}"

    @property
    def fence(self) -> str:
        """The property that tells the fence of who started last: nobody else may go back."""
        return f"headrace.fence/{self._own}"

    @property
    def keys(self) -> str:
        """The property that tells the key's columns."""
        return f"headrace.keys/{self._own}"

    @property
    def prefix(self) -> str:
        """Of WAP ids, and of branches. Those become part of a URL, where REST catalogs take no slash."""
        readable = "-".join(re.sub(r"\W", "_", name, flags=re.ASCII) for name in (self.writer, self.sink))
        return f"{PREFIX}{readable}-{sha256(self._own.encode()).hexdigest()[:12]}-"

    @property
    def hidden(self) -> str:
        """How tags begin that keep what was taken back; the last epoch that had come by then follows."""
        return f"{PREFIX}rewound_{sha256(self._own.encode()).hexdigest()[:12]}_"

    def new_id(self, epoch: int, fence: int) -> str:
        return f"{self.prefix}{epoch}-{fence}-{uuid4().hex}"

    def is_older(self, staged_id: str, fence: int) -> bool:
        """Whether it is ours and was staged under a lower fence."""
        return staged_id.startswith(self.prefix) and fence_of(staged_id) < fence

    def summary(self, staged_id: str, epoch: int, checkpoint: JsonObject) -> dict[str, str]:
        """Of a snapshot."""
        return {
            EPOCH: str(epoch),
            WRITER: self.writer,
            SINK: self.sink,
            CHECKPOINT: to_json(checkpoint),
            ID: staged_id,
        }

    def last_fence(self, state: State) -> int:
        return int(state.told(self.fence) or 0)

    def last_epoch(self, state: State) -> int:
        return int(state.told(self.epoch) or -1)

    def others_after(self, state: State, epoch: int) -> list[str]:
        """The other materializations that have written later epochs; properties outlive snapshots."""
        writers = {
            unquote(name.split("/")[1])
            for name, last in state.properties().items()
            if name.startswith(_EPOCHS) and int(last) > epoch
        }
        return sorted(writers - {self.writer})

    def has_written(self, snapshot: Any) -> bool:
        """Whether a snapshot is ours: of an epoch, or of a rewind."""
        summary = snapshot.summary()
        return (summary.get(WRITER), summary.get(SINK)) == (self.writer, self.sink)

    def epoch_of(self, snapshot: Any) -> int | None:
        """None if a snapshot is not ours."""
        return self._number(snapshot, EPOCH)

    def reached_by(self, snapshot: Any) -> int | None:
        """The last epoch that the table had with a snapshot of ours, also one that took later ones back."""
        rewound = self._number(snapshot, REWOUND)
        return self._number(snapshot, EPOCH) if rewound is None else rewound

    def _number(self, snapshot: Any, entry: str) -> int | None:
        found = snapshot.summary().get(entry) if self.has_written(snapshot) else None
        return None if found is None else int(found)
