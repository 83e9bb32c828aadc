"""Runs scenarios, round by round, over all lanes at once, and looks at what each leaves behind.

A round begins when every lane has caught up and is right. All lanes are brought to their points in one
process, since that has one Spark and takes long to start; what happens then happens to all of them.
"""

from __future__ import annotations

import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.certify.defects.switching import switch_on
from headrace.certify.documents import BATCH
from headrace.certify.feeds import Feed
from headrace.certify.fleet import Fleet
from headrace.certify.interference import Interference
from headrace.certify.lanes import Lane, configuration, write_configuration
from headrace.certify.looking import Looker, Looks
from headrace.certify.results import Evidence, Outcome
from headrace.certify.rounds import Round
from headrace.certify.scenarios import Arm, Between, How, Network, Scenario
from headrace.errors import UnexpectedFailure
from headrace.faults import Action, Faults
from headrace.pipeline.settings import Profile

CLOCK_MODULE = "headrace.certify.clock_back"
_SILENT_SECONDS = 400.0
_STALLED_SECONDS = 2.0
_LATE = f"nothing came of it in {_SILENT_SECONDS:.0f} s"
_NO_FAULT = "no fault"
_REFUSED = re.compile("taken over|fenced|replaced")


@dataclass(frozen=True)
class Surroundings:
    """What a chain runs in."""

    folder: Path
    profile: Profile = Profile.SINGLE_NODE_DURABLE
    more: Mapping[str, Any] = field(default_factory=dict)
    """Keys of `headrace.yaml`."""
    modules: tuple[str, ...] = ()
    """That every process imports: defects."""

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def temporary(self) -> Path:
        """What processes that are killed leave in the folder for such things."""
        return self.folder / "temporary"

    def checkpoint(self, lane: Lane) -> Path:
        """Spark's, of a state that is a folder."""
        return self.data / "state/materializations" / lane.name / "checkpoint"

    def on_host(self, lane: Lane) -> Path:
        """Returns the folder that is lost with the host; in a run with defects, that of the lane alone."""
        return self.data if self.profile is Profile.DISTRIBUTED_DURABLE else self.checkpoint(lane).parent


@dataclass
class _Trial:
    """A scenario in a lane, under way."""

    lane: Lane
    scenario: Scenario
    arms: list[Arm]
    began: str
    clock: float
    looks: Looks
    told: list[str] = field(default_factory=list)


class Chain:
    """`report` is told what is being done."""

    def __init__(
        self,
        surroundings: Surroundings,
        lanes: Sequence[Lane],
        seed: int = 0,
        report: Callable[[str], None] = lambda _: None,
        defects: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`defects` are switched on in the lanes that each names."""
        self._surroundings, self._seed, self._report = surroundings, seed, report
        self._lanes = list(lanes)
        self._feeds: list[Feed] = list(dict.fromkeys(lane.feed for lane in lanes))
        self._faults = Faults(surroundings.folder / "faults")  # of the process that runs now
        self._file = surroundings.folder / "headrace.yaml"
        self._content: dict[str, Any] = {}
        self._fleet: Fleet | None = None
        self._modules = list(surroundings.modules)
        self._defects = defects or {}
        self._trials: list[_Trial] = []
        self._given_up: dict[Lane, str] = {}
        self._fault_folders = 0
        self.guarantees: dict[str, str] = {}
        """What each lane claims, once it has run."""
        self.evidence: dict[str, list[Evidence]] = {lane.name: [] for lane in lanes}

    def run(self, rounds: Iterable[Round]) -> None:
        """Lanes that break are left out of the rounds after."""
        self._content = configuration(
            self._lanes, self._surroundings.data, self._surroundings.profile, dict(self._surroundings.more)
        )
        write_configuration(self._file, self._content)
        try:
            self._begin()
            for one in rounds:
                if not self._lanes:
                    break
                self._run_round([(lane, scenario) for lane, scenario in one if self._is_left(lane, scenario)])
        finally:
            self._stop()

    def _is_left(self, lane: Lane, scenario: Scenario) -> bool:
        """Otherwise it says so: what was not run has shown nothing."""
        if lane in self._lanes:
            return True
        why = f"the lane was given up after {self._given_up[lane]!r}"
        self._note(lane, Evidence(scenario.name, Outcome.NOT_RUN, why, self._seed))
        return False

    def _run_round(self, chosen: Round) -> None:
        try:
            self._try(chosen)
            self._catch_up([trial.lane for trial in self._trials])
        except UnexpectedFailure as error:  # it is over with a process, and with all lanes that were in it
            for trial in self._trials:
                trial.looks.wrong.append(error.message.partition("\n")[0])
                self._judge(trial.lane, trial, "its process is gone")
            self._trials = []
            self._stop()
        self._set_clock_right()

    def _begin(self) -> None:
        self._report("the first epochs")
        self._write(2)
        self._catch_up(self._lanes)
        for lane in self._lanes:
            if lane.target.can_restore:
                lane.target.save(lane.name)

    def _try(self, chosen: Round) -> None:
        began, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        for lane, scenario in chosen:
            self._trials.append(
                _Trial(lane, scenario, scenario.arms(lane), began, clock, self._looks_at(lane))
            )
        if not self._trials:
            return
        names = list(dict.fromkeys(trial.scenario.name for trial in self._trials))
        self._report(", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else ""))
        (how,) = {trial.scenario.how for trial in self._trials}
        self._faults.clear()
        self._write(max(trial.scenario.writes for trial in self._trials))
        for trial in self._trials:
            for arm in trial.arms:
                self._faults.arm(arm.point, arm.action, arm.occurrence)
        looker = Looker([trial.looks for trial in self._trials])
        fleet = self._running()
        fleet.run([trial.lane.name for trial in self._trials])
        self._wait(fleet, looker, lambda trial: self._is_there(fleet, trial), "at its point")
        match how:
            case How.KILLED:
                self._drop_unreached()
                self._kill()
                self._kill_again(looker)
                looker.look_at_all()
            case How.WOKEN:
                self._drop_unreached()
                self._wake(looker)
            case How.GOES_ON:
                self._disturb()
                self._wait(fleet, looker, lambda trial: trial.lane.name in fleet.ended, "over")
                self._drop_unreached()
                for trial in self._trials:
                    if why := fleet.ended.get(trial.lane.name):
                        trial.looks.wrong.append(f"it did not get over it: {why}")
                if fleet.is_stuck:
                    self._stop()
        self._faults.disarm()
        self._between()

    def _kill_again(self, looker: Looker) -> None:
        """Those that are to be, in their next start."""
        again = [trial for trial in self._trials if trial.scenario.again is not None]
        if not again:
            return
        for trial in again:
            assert trial.scenario.again is not None
            more = trial.scenario.again(trial.lane)
            trial.arms += more
            for arm in more:
                self._faults.arm(arm.point, arm.action, arm.occurrence)
        fleet = self._running()
        fleet.run([trial.lane.name for trial in again])
        self._wait(
            fleet, looker, lambda trial: trial not in again or self._is_there(fleet, trial), "at its point"
        )
        self._drop_unreached()
        self._kill()

    def _wake(self, looker: Looker) -> None:
        """Others finish while it sleeps; what it does when it wakes up must change nothing."""
        sleeper, asleep = self._running(), self._faults
        self._fault_folders += 1
        folder = self._surroundings.folder / f"faults-{self._fault_folders}"
        self._fleet, self._faults = None, Faults(folder)
        with sleeper:
            sleeper.freeze()
            other = self._running()
            self._write()
            names = {trial.lane.name for trial in self._trials}
            other.run(names)
            other.wait(lambda: names <= other.ended.keys(), _SILENT_SECONDS)
            for trial in self._trials:
                if why := other.ended.get(trial.lane.name, _LATE):
                    trial.looks.wrong.append(f"who takes over does not go on: {why}")
            looker.look_at_all()
            sleeper.thaw()
            for trial in self._trials:
                for arm in trial.arms:
                    asleep.release(arm.point)
            self._wait(sleeper, looker, lambda trial: trial.lane.name in sleeper.ended, "ended")
            for trial in self._trials:
                said = sleeper.ended.get(trial.lane.name, "")
                trial.told.append(f"who woke up was told: {said}" if said else "who woke up went on")
                if trial.scenario.must_be_refused and not _REFUSED.search(said):
                    trial.looks.wrong.append("who woke up was not refused")
            looker.look_at_all()

    def _disturb(self) -> None:
        """Breaks the connections of lanes that wait for it, and lets them go on."""
        for trial in self._trials:
            if (proxy := trial.lane.target.proxy) is not None:
                match trial.scenario.network:
                    case Network.CUT:
                        proxy.cut()
                    case Network.STALLED:
                        proxy.stall()
        for point in self._faults.parked:
            self._faults.release(point)
        if any(trial.scenario.network is Network.STALLED for trial in self._trials):
            time.sleep(_STALLED_SECONDS)
        for trial in self._trials:
            if (proxy := trial.lane.target.proxy) is not None and trial.scenario.network is Network.STALLED:
                proxy.cut()
                proxy.heal()

    def _catch_up(self, lanes: Sequence[Lane]) -> None:
        """What is written gets there, and each of the lanes is judged."""
        if not lanes:
            return
        fleet = self._running()
        looker = Looker([trial.looks for trial in self._trials])
        names = {lane.name for lane in lanes}
        fleet.run(names)

        def is_over() -> bool:
            looker.look()
            return names <= fleet.ended.keys()

        fleet.wait(is_over, _SILENT_SECONDS)
        self.guarantees |= fleet.guarantees
        ended = {name: fleet.ended.get(name, _LATE) for name in names}
        if fleet.is_stuck:
            self._stop()
        trials = {trial.lane.name: trial for trial in self._trials}
        self._trials = []
        for lane in list(lanes):
            self._judge(lane, trials.get(lane.name), ended[lane.name])

    def _judge(self, lane: Lane, trial: _Trial | None, failed: str) -> None:
        looks = trial.looks if trial else self._looks_at(lane)
        if failed and trial and _may_refuse(trial.scenario):
            trial.told.append(f"refused: {failed}")
            self._drop(lane, trial.scenario.name)
        elif failed:
            looks.wrong.append(f"it does not go on: {failed}")
        else:
            looks.look_at_end(lane.feed.written)
        broken = looks.problem
        if trial is None:
            if broken:
                self._note(lane, Evidence(_NO_FAULT, Outcome.BROKEN, self._public(broken), self._seed))
                self._drop(lane, _NO_FAULT)
            return
        outcome = Outcome.BROKEN if broken else Outcome.TWICE if looks.doubled else Outcome.HELD
        told = "; ".join(filter(None, [broken, looks.told, *trial.told]))
        self._note(lane, self._evidence(trial, outcome, told))
        if broken:
            self._drop(lane, trial.scenario.name)

    def _evidence(self, trial: _Trial, outcome: Outcome, told: str) -> Evidence:
        return Evidence(
            trial.scenario.name,
            outcome,
            self._public(told),
            self._seed,
            tuple(map(self._public, self._faults_of(trial))),
            trial.lane.feed.written,
            trial.looks.prefix // BATCH,
            trial.looks.count,
            round(time.monotonic() - trial.clock, 1),
            trial.began,
            len(trial.looks.lost),
            len(trial.looks.doubled),
        )

    def _public(self, text: str) -> str:
        """Without what only this machine knows, and what is another one each time."""
        text = text.replace(str(self._surroundings.folder), "FOLDER")
        text = re.sub(rf"\b{re.escape(socket.gethostname())}:\d+ at [\d:.T+-]+", "another process", text)
        for lane in self.evidence:
            text = text.replace(lane, "LANE")
        return text

    def _faults_of(self, trial: _Trial) -> list[str]:
        return [*(arm.told(trial.scenario.how) for arm in trial.arms), *trial.scenario.besides]

    def _looks_at(self, lane: Lane) -> Looks:
        return Looks(lane, keeps_state=self._surroundings.profile is not Profile.DEV_LOCAL)

    def _drop(self, lane: Lane, after: str) -> None:
        """What it has is wrong, or is not gone on with, so nothing more can be shown by it."""
        if lane in self._lanes:
            self._lanes.remove(lane)
            self._given_up[lane] = after

    def _drop_unreached(self) -> None:
        """A lane that never came to its points has shown nothing."""
        for trial in list(self._trials):
            missed = {arm.point for arm in trial.arms} - self._faults.fired
            why = self._fleet.ended.get(trial.lane.name, "") if self._fleet else ""
            if missed and why:
                trial.looks.wrong.append(f"it ended before it came to {', '.join(sorted(missed))}: {why}")
            if missed and not trial.looks.wrong:
                self._trials.remove(trial)
                told = f"it never came to {', '.join(sorted(missed))}"
                self._note(trial.lane, self._evidence(trial, Outcome.NOT_RUN, told))

    def _note(self, lane: Lane, evidence: Evidence) -> None:
        self.evidence[lane.name].append(evidence)

    def _is_there(self, fleet: Fleet, trial: _Trial) -> bool:
        waits = {arm.point for arm in trial.arms if arm.action is Action.PARK}
        happened = waits <= self._faults.parked and {arm.point for arm in trial.arms} <= self._faults.fired
        return happened or trial.lane.name in fleet.ended

    def _wait(self, fleet: Fleet, looker: Looker, is_so: Callable[[_Trial], bool], what: str) -> None:
        def is_enough() -> bool:
            looker.look()
            return all(is_so(trial) for trial in self._trials)

        if not fleet.wait(is_enough, _SILENT_SECONDS):
            for trial in self._trials:
                if not is_so(trial):
                    trial.looks.wrong.append(f"{what}: {_LATE}")

    def _between(self) -> None:
        """While nothing runs."""
        happens = {trial.scenario.between for trial in self._trials} - {Between.NOTHING}
        if not happens:
            return
        self._stop()
        if Between.CLOCK_BACK in happens:
            self._modules.append(CLOCK_MODULE)
            self._run_once()  # so that there is a start that finds what was written by this clock
        for trial in self._trials:
            checkpoint = self._surroundings.checkpoint(trial.lane)
            match trial.scenario.between:
                case Between.COMMIT_ENTRY_DELETED:
                    _last_entry(checkpoint / "commits").unlink()
                case Between.CHECKPOINT_LOST:
                    shutil.rmtree(checkpoint)
                case Between.RESTORED:
                    trial.lane.target.restore(trial.lane.name)
                    trial.looks.seen.clear()
                case Between.HOST_LOST:
                    shutil.rmtree(self._surroundings.on_host(trial.lane), ignore_errors=True)
                    shutil.rmtree(self._surroundings.temporary, ignore_errors=True)
        self._surroundings.data.mkdir(parents=True, exist_ok=True)
        if self._trials and self._trials[0].scenario.refusal:
            Interference(self._content, self._start).run(self._trials)

    def _start(self, names: Sequence[str], content: dict[str, Any]) -> dict[str, str]:
        """Has a process of its own run materializations of another file; why each has failed."""
        write_configuration(self._file, content)
        try:
            fleet, wanted = self._running(), set(names)
            fleet.run(wanted)
            fleet.wait(lambda: wanted <= fleet.ended.keys(), _SILENT_SECONDS)
            return {name: fleet.ended.get(name, _LATE) for name in names}
        finally:
            self._stop()
            write_configuration(self._file, self._content)

    def _run_once(self) -> None:
        fleet, names = self._running(), {trial.lane.name for trial in self._trials}
        fleet.run(names)
        fleet.wait(lambda: names <= fleet.ended.keys(), _SILENT_SECONDS)
        self._stop()
        self._write()

    def _set_clock_right(self) -> None:
        """So that it is stepped forward, too."""
        if CLOCK_MODULE in self._modules:
            self._modules.remove(CLOCK_MODULE)
            self._stop()

    def _write(self, writes: int = 1) -> None:
        for feed in self._feeds:
            feed.write(writes)

    def _running(self) -> Fleet:
        if self._fleet is None:
            self._fleet = self._started(self._faults)
        return self._fleet

    def _started(self, faults: Faults) -> Fleet:
        faults.load(*self._modules)
        switch_on(faults, self._defects)
        self._surroundings.temporary.mkdir(parents=True, exist_ok=True)
        return Fleet(self._file, faults, {"TMPDIR": str(self._surroundings.temporary)})

    def _kill(self) -> None:
        if self._fleet is not None:
            self._fleet.__exit__()
            self._fleet = None

    _stop = _kill  # what has ended well has nothing left to do


def _may_refuse(scenario: Scenario) -> bool:
    """A sink that was restored lacks what the log knows it had: to say so is as good as to go on.

    Of a source that is another one now, it has been said.
    """
    return scenario.between in (Between.RESTORED, Between.SOURCE_RECREATED)


def _last_entry(folder: Path) -> Path:
    entries = [entry for entry in folder.iterdir() if entry.name.isdigit()]
    return max(entries, key=lambda entry: int(entry.name))
