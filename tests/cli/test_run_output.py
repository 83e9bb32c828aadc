"""What `headrace run` shows in a terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime

from rich.console import Console

from headrace.cli.run_output import LiveStatus
from headrace.pipeline.guarantee import Compiled, Reason
from headrace.pipeline.progress import EpochProgress
from headrace.pipeline.settings import Guarantee

BRACKETS = "failed: [Errno 111] [/x] and [bold]more[/bold]"


def test_what_has_brackets_is_shown_as_it_is() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=200, highlight=False)
    status = LiveStatus(console)
    reason = Reason("source [a]", Guarantee.EXACTLY_ONCE, "[/why]")
    with status:
        status.planned("vi[e]w", Compiled(Guarantee.EXACTLY_ONCE, (reason,)), "create [/table]")
        status.state("vi[e]w", BRACKETS)
        status.epoch("vi[e]w", EpochProgress(3, datetime(2026, 11, 16, tzinfo=UTC), 1))
    text = shown.getvalue()
    assert "vi[e]w: exactly-once" in text
    assert "source [a]: exactly-once ([/why])" in text
    assert "create [/table]" in text
    assert BRACKETS in text
    assert "vi[e]w: epoch 3" in text
