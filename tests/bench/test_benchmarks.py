"""The benchmarks of the ingest server that stand alone run to their end, small ones here."""

from __future__ import annotations

import sys

import pytest

from benchmarks import idle_streams, restart, sustained

pytestmark = [pytest.mark.full, pytest.mark.processes]


def test_what_idle_streams_cost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(idle_streams, "WRITING_SECONDS", 1)
    monkeypatch.setattr(idle_streams, "IDLE_SECONDS", 1)
    monkeypatch.setattr(sys, "argv", ["idle_streams", "--streams", "2"])
    idle_streams.main()
    assert "KiB a stream" in capsys.readouterr().out


def test_whether_the_committer_keeps_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--rate", "100", "--seconds", "3", "--clients", "2"]
    monkeypatch.setattr(sys, "argv", ["sustained", *options])
    sustained.main()
    shown = capsys.readouterr().out
    assert "300 writes at 100/s, 2 clients" in shown
    assert "COMMITTED" in shown


def test_a_restart_with_a_backlog(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["restart", "--mib", "3"])
    restart.main()
    assert "S3 server" in capsys.readouterr().out
