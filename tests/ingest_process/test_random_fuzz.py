"""The server's port receives different random input in each run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.chance import SOAK_SEED
from tests.ingest_process import test_fuzz
from tests.ingest_process.serving import Serving

pytestmark = [pytest.mark.soak, pytest.mark.processes]


@pytest.mark.parametrize(
    "said",
    [
        test_fuzz.test_bytes_that_are_not_http2,
        test_fuzz.test_http2_that_breaks_off_or_lies,
        partial(test_fuzz.test_mutated_arrow_messages, None),
        partial(test_fuzz.test_mutated_arrow_messages, "zstd"),
    ],
    ids=["bytes", "http2", "arrow", "compressed arrow"],
)
def test_whatever_comes_in(
    said: Callable[[Serving], None], unharmed: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_fuzz, "SEED", SOAK_SEED)
    said(unharmed)
