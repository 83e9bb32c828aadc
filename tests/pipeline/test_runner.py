"""How often a runner tries again, and how it ends."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError, HeadraceError, Transient
from headrace.pipeline.coordinator import RetryPolicy
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import PipelineSettings, Trigger
from headrace.pipeline.state_paths import open_recovery_log_for_reading
from tests.pipeline.scenario import Recorder, Scenario
from tests.waiting import wait_until

SOON = RetryPolicy(first_pause=0.0, longest_pause=0.0)


class FailingRunner(Runner):
    """Runs nothing, and raises these errors one after the other."""

    def __init__(self, settings: PipelineSettings, errors: list[HeadraceError], **options: Any) -> None:
        self.recorder = Recorder()
        super().__init__(settings, self.recorder, **options)
        self._errors = iter(errors)
        self.tried = 0

    def _run_once(self, *_: Any) -> None:
        self.tried += 1
        if error := next(self._errors, None):
            raise error

    def keep_running(self) -> None:
        (one,) = self._settings.materializations
        self._keep_running(None, one, None, None)  # type: ignore[arg-type]


def settings_of(folder: Path, **options: Any) -> PipelineSettings:
    return Scenario(folder, "sqlite", {"path": str(folder / "view.db")}).settings(**options)


def test_what_is_to_end_gives_up(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, trigger=Trigger(once=True))
    runner = FailingRunner(settings, [Transient("no answer")] * 9, retry_policy=SOON, attempts=3)
    runner.keep_running()
    assert runner.tried == 3
    assert runner.failures["view"].message == "gave up after 3 attempts: no answer"
    assert (
        open_recovery_log_for_reading(settings, "view")
        .failure()
        .endswith("gave up after 3 attempts: no answer")
    )


def test_what_passes_is_tried_again_and_forgotten(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, trigger=Trigger())
    runner = FailingRunner(settings, [Transient("no answer")] * 9, retry_policy=SOON, attempts=3)
    runner.keep_running()
    assert (runner.tried, runner.failures) == (10, {})


def test_what_stays_is_not_tried_again(tmp_path: Path) -> None:
    runner = FailingRunner(settings_of(tmp_path), [ConfigError("change it")], retry_policy=SOON)
    runner.keep_running()
    assert (runner.tried, runner.failures["view"].message) == (1, "change it")
    assert runner.recorder.states == ["stopped: change it"]


def test_stopped_while_it_fails_is_a_failure(tmp_path: Path) -> None:
    retry_policy = RetryPolicy(first_pause=3600.0, longest_pause=3600.0)
    runner = FailingRunner(
        settings_of(tmp_path, trigger=Trigger()), [Transient("no answer")], retry_policy=retry_policy
    )
    running = threading.Thread(target=runner.keep_running)
    running.start()
    wait_until(lambda: runner.recorder.states)
    assert runner.recorder.states == ["failed, again in 3600 s: no answer"]
    runner.stop()
    running.join()
    assert runner.failures["view"].message == "it was stopped while it failed: no answer"
