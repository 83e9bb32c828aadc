"""Interferes with pipelines while they are stopped: the next start has to refuse, and all is put right then.

Each of these was once taken for granted: that the same name is the same thing, that a table is ours, that a
start may act before it has asked, that what was committed is still there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.certify.feeds import Feed
from headrace.certify.lanes import Lane
from headrace.certify.looking import Looks
from headrace.certify.scenarios import Between, Scenario
from headrace.certify.targets.target import ANEW, LATER

_OTHER = "-other"
"""The end of the name of a materialization that is started on another one's tables."""
_MORE = 3
"""Writes in an epoch that is to differ from the one of the same number."""

Content = dict[str, Any]
"""A `headrace.yaml`."""


class Trial(Protocol):
    @property
    def lane(self) -> Lane: ...
    @property
    def scenario(self) -> Scenario: ...
    @property
    def looks(self) -> Looks: ...
    @property
    def told(self) -> list[str]: ...


def lane_of(materialization: str) -> str:
    """The lane whose tables a materialization writes, or wants to."""
    return materialization.removesuffix(_OTHER)


@dataclass(frozen=True)
class Interference:
    """`start` runs materializations of a configuration and returns why each failed; empty: it did not."""

    content: Content
    """The configuration of the lanes."""
    start: Callable[[Sequence[str], Content], Mapping[str, str]]

    def run(self, trials: Sequence[Trial]) -> None:
        """All trials have the same scenario."""
        match trials[0].scenario.between:
            case Between.FAILED_BACK:
                self._fail_back(trials)
            case Between.SHARED:
                self._share(trials)
            case Between.FILE_CHANGED:
                self._expect_refusals(trials, self.start(_names(trials), _with_another_schema(self.content)))
            case Between.ROLLED_BACK:
                undo = [trial.lane.target.roll_back(trial.lane.name) for trial in trials]
                self._expect_refusals(trials, self.start(_names(trials), self.content))
                for put_back in undo:
                    put_back()
            case Between.SOURCE_RECREATED:
                self._recreate_sources(trials)

    def _fail_back(self, trials: Sequence[Trial]) -> None:
        """Ends with the copy that fits."""
        for trial in trials:
            trial.lane.target.save(trial.lane.name, LATER)
            trial.lane.target.restore(trial.lane.name)
            trial.looks.seen.clear()
        ended = self.start(_names(trials), _with_larger_epochs(self.content))
        for trial in trials:
            if why := ended[trial.lane.name]:
                trial.looks.wrong.append(f"it does not go on from the first copy: {why}")
            trial.lane.target.save(trial.lane.name, ANEW)
            trial.lane.target.restore(trial.lane.name, LATER)
        self._expect_refusals(trials, self.start(_names(trials), self.content))
        for trial in trials:
            trial.lane.target.restore(trial.lane.name, ANEW)
            trial.looks.seen.clear()

    def _share(self, trials: Sequence[Trial]) -> None:
        """One after the other, since a connector that refuses keeps all of its file from being started."""
        materializations = self.content["materializations"]
        others = {f"{name}{_OTHER}": materializations[name] for name in _names(trials)}
        content = {**self.content, "materializations": others}
        ended: dict[str, str] = {}
        for name in others:
            ended |= {lane_of(name): why for name, why in self.start([name], content).items()}
        self._expect_refusals(trials, ended)

    def _recreate_sources(self, trials: Sequence[Trial]) -> None:
        """Nothing brings them back, so their lanes end with this."""
        written = {trial.lane.name: trial.lane.feed.written for trial in trials}
        feeds: list[Feed] = list(dict.fromkeys(trial.lane.feed for trial in trials))
        for feed in feeds:
            feed.recreate()
        self._expect_refusals(trials, self.start(_names(trials), self.content))
        for trial in trials:
            trial.looks.look_at_end(written[trial.lane.name])

    def _expect_refusals(self, trials: Sequence[Trial], ended: Mapping[str, str]) -> None:
        for trial in trials:
            why = ended[trial.lane.name]
            if re.search(trial.scenario.refusal, why):
                trial.told.append(f"refused: {why}")
            else:
                trial.looks.wrong.append(f"the start was not refused: {why or 'it went on'}")


def _names(trials: Sequence[Trial]) -> list[str]:
    return [trial.lane.name for trial in trials]


def _with_another_schema(content: Content) -> Content:
    """An integer has become a number, which an endpoint can follow and not take back."""
    collections = {
        name: {**one, "schema": {**one["schema"], "properties": _with_numbers(one["schema"]["properties"])}}
        for name, one in content["collections"].items()
    }
    return {**content, "collections": collections}


def _with_numbers(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {**properties, "total": {**properties["total"], "type": "number"}}


def _with_larger_epochs(content: Content) -> Content:
    """Rows that are cut into epochs otherwise are another history."""
    materializations = {
        name: {**one, "limits": {of: _MORE * limit for of, limit in one["limits"].items()}}
        for name, one in content["materializations"].items()
    }
    return {**content, "materializations": materializations}
