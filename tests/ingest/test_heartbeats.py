"""A task that hangs or has ended is named, and so is one of which nothing is known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import EndpointUnavailable
from headrace.ingest.cleaner import Cleaner
from headrace.ingest.commit_loop import CommitLoop, longest_silence
from headrace.ingest.control import Control
from headrace.ingest.disk_space import DiskSpace
from headrace.ingest.engine import Engine
from headrace.ingest.heartbeats import Heartbeats
from headrace.ingest.uploader import Uploader
from headrace.model.tiers import Tier
from tests.ingest.support import (
    FakeIceberg,
    LocalSession,
    Store,
    batch,
    running_engine,
    settings_for,
    write_all,
)
from tests.waiting import DEADLINE_SECONDS, wait_until

TASKS = ("control", "uploader", "commits", "cleaner", "disk")
STEPS: dict[str, tuple[type, str]] = {
    "control": (Control, "_take"),
    "uploader": (Uploader, "_put"),
    "commits": (CommitLoop, "_commit"),
    "cleaner": (Cleaner, "_remove_committed"),
    "disk": (DiskSpace, "look"),
}
"""Of each task a method that it calls when there is something to do."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ingest.control", "ingest.uploader", "ingest.cleaner"):
        monkeypatch.setattr(f"headrace.{module}.IDLE_SECONDS", 0.01)
    monkeypatch.setattr("headrace.ingest.disk_space._LOOK_SECONDS", 0.01)


def test_a_task_is_well_while_its_thread_lives_and_beats() -> None:
    now = [100.0]
    heartbeats = Heartbeats(lambda: now[0])
    beat = heartbeats.expect("uploader", 30.0)
    assert heartbeats.problems() == ["task uploader has not begun: nothing is known of it"]
    beat()
    now[0] += 30
    assert (heartbeats.problems(), heartbeats.ages()) == ([], {"uploader": 30.0})
    now[0] += 1
    [problem] = heartbeats.problems()
    assert problem.startswith("task uploader has shown no sign of life for 31 s, where 30 are the most")
    thread = threading.Thread(target=beat)
    thread.start()
    thread.join()
    assert heartbeats.problems() == ["task uploader has ended: restart the server"]


def test_a_task_that_is_not_ours_is_asked() -> None:
    pulse = (True, 30.0)
    heartbeats = Heartbeats()
    heartbeats.watch("log", 30.0, lambda: pulse)
    assert (heartbeats.problems(), heartbeats.ages()) == ([], {"log": 30.0})
    pulse = (True, 31.0)
    [problem] = heartbeats.problems()
    assert problem.startswith("task log has shown no sign of life for 31 s, where 30 are the most")
    pulse = (False, 0.0)
    assert heartbeats.problems() == ["task log has ended: restart the server"]


def test_a_commit_that_takes_as_long_as_it_may_is_no_problem() -> None:
    assert longest_silence(5.0, 300.0) > 300.0
    assert longest_silence(3600.0, 300.0) > 3600.0


def test_an_engine_that_is_not_started_is_not_ok(tmp_path: Path, iceberg: FakeIceberg) -> None:
    engine = Engine(settings_for(tmp_path))
    health = engine.health()
    assert health["status"] == "degraded"
    assert {problem.split()[1] for problem in health["problems"] if "not begun" in problem} == set(TASKS)
    engine.close()


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, task: str) -> Iterator[threading.Event]:
    """Has the task wait in the middle of its work; the event says that it does."""
    kind, name = STEPS[task]
    real: Callable[..., object] = getattr(kind, name)
    waits, may_go_on = threading.Event(), threading.Event()

    def hesitant(*arguments: object) -> object:
        waits.set()
        assert may_go_on.wait(DEADLINE_SECONDS)
        return real(*arguments)

    monkeypatch.setattr(kind, name, hesitant)
    try:
        yield waits
    finally:
        may_go_on.set()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("task", TASKS)
def test_a_task_that_hangs_is_named_and_no_other(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    now = [0.0]
    with running_engine(tmp_path, clock=lambda: now[0]) as engine:
        write_all(engine, 1, level=Tier.COMMITTED)
        wait_until(lambda: engine.health()["status"] == "ok")
        with LocalSession(engine) as session, held(monkeypatch, task) as waits:
            session.send(batch(2))
            assert waits.wait(DEADLINE_SECONDS)
            now[0] += 10_000
            wait_until(lambda: len(engine.health()["problems"]) == 1)
            health = engine.health()
            assert health["status"] == "degraded"
            assert health["problems"][0].startswith(f"task {task} has shown no sign of life for 10000 s")
            assert health["heartbeat_ages"][task] == 10_000
        wait_until(lambda: engine.health()["status"] == "ok")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("task", TASKS)
def test_a_task_whose_thread_has_ended_is_named(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    def end(*_: object) -> None:
        raise SystemExit

    with running_engine(tmp_path) as engine:
        write_all(engine, 1, level=Tier.COMMITTED)
        wait_until(lambda: engine.health()["status"] == "ok")
        monkeypatch.setattr(*STEPS[task], end)
        with LocalSession(engine) as session:
            session.send(batch(2))
            wait_until(lambda: engine.health()["problems"] == [f"task {task} has ended: restart the server"])


def test_tables_that_have_not_answered_are_not_ok(tmp_path: Path, iceberg: FakeIceberg) -> None:
    engine = Engine(settings_for(tmp_path))
    assert "the tables have not said yet how far they are" in engine.health()["problems"]
    engine.close()
    with running_engine(tmp_path) as engine:
        wait_until(lambda: engine.health()["status"] == "ok")


def test_backlogs_are_counted_where_they_are(tmp_path: Path, iceberg: FakeIceberg) -> None:
    nothing = {"uploader": 0, "commits": 0, "cleaner": 0}

    def await_backlogs(**expected: int) -> None:
        wait_until(lambda: engine.health()["backlogs"] == nothing | expected)

    store = Store(tmp_path / "objects")
    store.removing_fails = True
    iceberg.problem = EndpointUnavailable("no catalog")
    with running_engine(tmp_path / "data", store=store) as engine:
        store.hold()
        write_all(engine, 1, level=Tier.LOCAL_DISK)
        await_backlogs(uploader=1)
        store.let_go()
        await_backlogs(commits=1)
        iceberg.problem = None
        wait_until(lambda: write_all(engine, 2, level=Tier.COMMITTED) and engine._cleaner.backlog)
        left = engine.health()["backlogs"]["cleaner"]
        await_backlogs(cleaner=left)
        store.removing_fails = False
        await_backlogs()
