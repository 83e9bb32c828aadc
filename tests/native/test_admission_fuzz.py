"""Of broken messages nothing is taken that those who read the log then refuse, nor is memory used up."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headrace.ingest.schemas import Adapter, storable
from tests.chance import SOAK_SEED
from tests.ingest_process.test_fuzz import TABLE, mutated
from tests.ingest_process.wire import ipc_messages
from tests.native.admission import Admission, Refused, read
from tests.native.bad_views import bad_view
from tests.native.random_arrays import LEAVES, batch, leaf
from tests.native.test_admission import MIB, peak

pytestmark = pytest.mark.processes

MOST = 8 * MIB


def fuzz(admission: Admission, chance: random.Random, count: int) -> tuple[int, int]:
    """Returns how many messages were taken, and how many refused."""
    taken = refused = 0
    leaves = pa.table({str(kind): leaf(chance, kind, 9, 0.3) for kind in LEAVES})
    while taken + refused < count:
        table = chance.choice([TABLE, leaves, pa.table(batch(chance))])
        options = pa.ipc.IpcWriteOptions(compression=chance.choice([None, None, "zstd", "lz4"]))
        kept = storable("c", table.schema)
        good = ipc_messages(table, options)
        for _ in range(50):
            answers = admission.admit(mutated(good, chance), kept, most=MOST)
            messages = [answer for answer in answers if isinstance(answer, bytes)]
            refusals = [answer for answer in answers if isinstance(answer, Refused)]
            assert "panic" not in [refusal.message for refusal in refusals]
            taken += len(messages)
            refused += len(refusals)
            if messages:
                got = read(kept, messages)
                got.validate(full=True)
                assert not bad_view(got)
                Adapter("c", kept, kept)(got)
    return taken, refused


def test_what_is_taken_of_broken_messages_can_be_read(admission: Admission) -> None:
    taken, refused = fuzz(admission, random.Random(20260), 10_000)
    assert taken > 100
    assert refused > 1_000
    assert peak(admission) < 256 * MIB


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_what_is_taken_of_a_million_broken_messages_can_be_read(admission: Admission) -> None:
    fuzz(admission, random.Random(SOAK_SEED), 1_000_000)
    assert peak(admission) < 256 * MIB
