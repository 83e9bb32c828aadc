"""A data folder is not compared with its store when it is opened."""

from __future__ import annotations

from typing import Any

from headrace.ingest import low_water
from headrace.ingest.data_folder import DataFolder, Identity
from headrace.ingest.low_water import LowWater
from headrace.ingest.store import SegmentStore


def _unasked(_: DataFolder, store: SegmentStore, __: Identity, ___: int) -> LowWater | None:
    return low_water.read_newest(store)


_patched: Any = DataFolder
_patched.prove = _unasked
