"""What is made to go wrong: at which points, and what is done to the process that has come there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from headrace.certify.lanes import Lane
from headrace.faults import Action


class How(StrEnum):
    KILLED = "killed"
    """kill -9, of everything, once every lane waits at its point; then it is started again."""
    WOKEN = "woken"
    """It is frozen there, others take over and finish, and then it wakes up."""
    GOES_ON = "goes on"
    """It is not touched, and has to get over what went wrong by itself."""


class Between(StrEnum):
    """What happens while nothing runs, before the next start."""

    NOTHING = ""
    COMMIT_ENTRY_DELETED = "the last entry of Spark's commit log is deleted"
    CHECKPOINT_LOST = "Spark's checkpoint folder is deleted"
    RESTORED = "the endpoint is restored from an old copy"
    CLOCK_BACK = "the clock is set back by an hour, and forth again"
    HOST_LOST = "everything on the host's disk is deleted"
    FAILED_BACK = "the endpoint is restored from an old copy, goes on, and then is as it was before"
    SHARED = "another materialization is started on the same tables"
    FILE_CHANGED = "a file with another schema is tried, and then the first one again"
    ROLLED_BACK = "the last epoch is taken back by the format's own means"
    SOURCE_RECREATED = "the source is removed, and another one gets its name"


class Network(StrEnum):
    FINE = ""
    CUT = "connections are reset"
    STALLED = "nothing gets through for two seconds, and then connections are reset"


@dataclass(frozen=True)
class Arm:
    point: str
    action: Action = Action.PARK
    occurrence: int = 1

    def told(self, how: How) -> str:
        """What waits at its point is there for what happens to it then."""
        what = str(how) if self.action is Action.PARK else _WORDS[self.action]
        which = f", the {self.occurrence}. time" if self.occurrence > 1 else ""
        return f"{what} at {self.point}{which}"


_WORDS = {
    Action.KILL: "killed",
    Action.LOSE: "worker killed",
    Action.IO_ERROR: "EIO",
    Action.DISK_FULL: "ENOSPC",
    Action.UNAVAILABLE: "no answer",
}


Arms = Callable[[Lane], list[Arm]]


@dataclass(frozen=True)
class Scenario:
    name: str
    about: str
    """What a reader has to know of it, in one sentence."""
    arms: Arms
    """In a lane; none if it has no meaning there."""
    how: How = How.KILLED
    between: Between = Between.NOTHING
    is_once: bool = False
    """Whether its points are come to once in a start, not in each epoch."""
    writes: int = 1
    """Epochs that are there for it."""
    again: Arms | None = None
    """Where the next start is killed as well; for those that are killed."""
    must_be_refused: bool = False
    """Whether who wakes up has to be told so."""
    refusal: str = ""
    """Pattern of the sentence with which the next start has to be refused, before all is put right."""
    network: Network = Network.FINE
    """What becomes of connections to the endpoint while its lanes wait."""
    is_quick: bool = False
    is_of_source: bool = False
    """Whether it is tried with every source: what goes wrong is also where rows come from, and how far."""

    @property
    def besides(self) -> tuple[str, ...]:
        """What happens beside what is armed."""
        return tuple(filter(None, (str(self.between), str(self.network))))


def _two(lane: Lane) -> bool:
    return len(lane.sinks) > 1


def _either(
    connector: Callable[[Lane], str], sink: Callable[[Lane], str], action: Action = Action.PARK
) -> Arms:
    return lambda lane: [Arm(connector(lane) if lane.has_connector else sink(lane), action)]


def _connector(point: Callable[[Lane], str], action: Action = Action.PARK) -> Arms:
    return lambda lane: [Arm(point(lane), action)] if lane.has_connector else []


def _message(message: str) -> Arms:
    """Of the protocol, in a task."""
    is_load = message in _LOADS
    return lambda lane: (
        [Arm(lane.task(message))] if lane.has_connector and (lane.target.is_loaded or not is_load) else []
    )


def _sinks(point: Callable[[Lane], str], action: Action = Action.PARK) -> Arms:
    return lambda lane: [Arm(point(lane), action)] if lane.sinks else []


def _all(point: Callable[[Lane], str], action: Action = Action.PARK) -> Arms:
    return lambda lane: [Arm(point(lane), action)]


def _settled(lane: Lane) -> list[Arm]:
    """Where everything is done."""
    return [Arm(lane.log("wrote settled"))]


_in_commit = _either(
    lambda lane: lane.driver("sending Acknowledge"), lambda lane: f"committing {lane.sinks[-1]}"
)

MESSAGES = [
    "received Opened",
    "sending Acknowledge",
    "received Acknowledged",
    "sending Load",
    "received Loaded",
    "sending Flush",
    "received Flushed",
    "sending Store",
    "sending StartCommit",
    "received StartedCommit",
]
"""Arrows of the protocol's sequence diagram, in a task."""
_LOADS = ("sending Load", "received Loaded")
"""Those that are left out where nothing is loaded."""

SCENARIOS = [
    Scenario(
        "killed before prepare",
        "The epoch is planned, and nothing of it is staged or sent yet.",
        _either(lambda lane: lane.task("sending Open"), lambda lane: f"preparing {lane.sinks[0]}"),
    ),
    Scenario(
        "killed in prepare",
        "Tasks are writing the epoch's rows.",
        _either(lambda lane: lane.task("sending Store"), lambda lane: f"writing {lane.sinks[0]}"),
        is_of_source=True,
    ),
    Scenario(
        "killed between two prepares",
        "One sink has staged the epoch, the other has not begun.",
        lambda lane: [Arm(lane.did(f"prepared {lane.sinks[0]}"))] if _two(lane) else [],
    ),
    Scenario(
        "killed before the decision",
        "Everything is prepared, and the recovery log does not say so.",
        _all(lambda lane: lane.log("writing decided")),
        is_quick=True,
        is_of_source=True,
    ),
    Scenario(
        "killed after the decision",
        "The recovery log says that the epoch will be committed, and nothing of it is.",
        _all(lambda lane: lane.did("decided")),
        is_quick=True,
        is_of_source=True,
    ),
    Scenario(
        "killed in commit",
        "The epoch is being published; where there are two sinks, in one of them it is.",
        lambda lane: [] if lane.target.commits_in_tasks else _in_commit(lane),
    ),
    Scenario(
        "killed while shards are taken over",
        "A start has told the endpoint that tasks of whoever ran before are not to commit any more.",
        lambda lane: [Arm(lane.driver("received StartedCommit"))] if lane.target.commits_in_tasks else [],
        is_once=True,
    ),
    Scenario(
        "killed again while recovering",
        "There is a kill after the decision, and another one when the next start has opened the log.",
        _all(lambda lane: lane.did("decided")),
        again=_all(lambda lane: lane.log("wrote opened")),
    ),
    Scenario(
        "killed again while settling",
        "The next start has committed what was decided, and is killed before it can say so.",
        _sinks(lambda lane: lane.did("decided")),
        again=_sinks(lambda lane: lane.log("writing settled")),
    ),
    Scenario(
        "killed after commit",
        "The epoch is published, and nobody has noted it.",
        _either(lambda lane: lane.did("committed connector"), lambda lane: f"published {lane.sinks[-1]}"),
        is_quick=True,
        is_of_source=True,
    ),
    Scenario(
        "killed in abort",
        "A sink fails, and what another has staged is being removed.",
        lambda lane: (
            [
                Arm(f"preparing {lane.sinks[1]}", Action.UNAVAILABLE),
                Arm(f"aborting {lane.sinks[0]}"),
            ]
            if _two(lane)
            else []
        ),
    ),
    *(
        Scenario(
            f"killed at {message}",
            "An arrow of the protocol's sequence diagram.",
            _message(message),
        )
        for message in MESSAGES
    ),
    Scenario(
        "woken before the decision",
        "A coordinator sleeps with everything prepared, another finishes, and it wakes up.",
        _all(lambda lane: lane.log("writing decided")),
        How.WOKEN,
        must_be_refused=True,
        is_quick=True,
        is_of_source=True,
    ),
    Scenario(
        "woken after the decision",
        "A coordinator sleeps between decision and commit, another finishes and goes on, and it wakes up.",
        _all(lambda lane: lane.did("decided")),
        How.WOKEN,
        must_be_refused=True,
    ),
    Scenario(
        "woken task",
        "A task sleeps before it commits in the endpoint, another process finishes, and it wakes up.",
        _connector(lambda lane: lane.task("sending StartCommit")),
        How.WOKEN,
    ),
    Scenario(
        "task attempt lost",
        "A worker of Spark's dies in the middle of a task, and Spark runs the task again.",
        _either(
            lambda lane: lane.task("sending StartCommit"),
            lambda lane: f"writing {lane.sinks[0]}",
            Action.LOSE,
        ),
        How.GOES_ON,
        is_of_source=True,
    ),
    Scenario(
        "disk full in a task",
        "A task of Spark's finds no room on its disk, and Spark runs it again.",
        _either(
            lambda lane: lane.task("sending Store"),
            lambda lane: f"writing {lane.sinks[0]}",
            Action.DISK_FULL,
        ),
        How.GOES_ON,
    ),
    Scenario(
        "connection cut",
        "Connections to the endpoint are reset before it is told to commit.",
        lambda lane: [Arm(lane.task("sending StartCommit"))] if lane.is_reached_by_network else [],
        How.GOES_ON,
        network=Network.CUT,
    ),
    Scenario(
        "connection stalled",
        "Nothing gets to the endpoint, or back, for a while, and then connections are reset.",
        lambda lane: [Arm(lane.task("sending StartCommit"))] if lane.is_reached_by_network else [],
        How.GOES_ON,
        network=Network.STALLED,
    ),
    Scenario(
        "commit entry deleted",
        "All is done, and Spark's commit log has lost its last entry, so that Spark runs that epoch again.",
        _all(lambda lane: lane.log("writing settled")),
        between=Between.COMMIT_ENTRY_DELETED,
        is_once=True,
        is_of_source=True,
    ),
    Scenario(
        "checkpoint lost",
        "Spark's whole checkpoint folder is gone.",
        _all(lambda lane: lane.did("decided")),
        between=Between.CHECKPOINT_LOST,
        is_of_source=True,
    ),
    Scenario(
        "log unavailable",
        "The recovery log cannot be written for a while, and after the decision there is a kill.",
        lambda lane: [
            Arm(lane.log("writing decided"), Action.UNAVAILABLE),
            Arm(lane.did("committed connector") if lane.has_connector else f"published {lane.sinks[-1]}"),
        ],
    ),
    Scenario(
        "sink unavailable",
        "A sink does not answer when a decided epoch is to be committed.",
        _sinks(lambda lane: f"committing {lane.sinks[0]}", Action.UNAVAILABLE),
        How.GOES_ON,
    ),
    Scenario(
        "clock stepped back",
        "The clock is set back by an hour before a start.",
        _all(lambda lane: lane.did("decided")),
        between=Between.CLOCK_BACK,
    ),
    Scenario(
        "endpoint restored",
        "All is done, and the endpoint is restored from a copy that was made after the first epochs.",
        lambda lane: _settled(lane) if lane.target.can_restore else [],
        between=Between.RESTORED,
    ),
    Scenario(
        "restored twice and failed back",
        "The endpoint is restored from a copy and goes on otherwise than before, and then gets the rows that "
        "it had before it was restored: epochs of the same numbers, and of another history.",
        lambda lane: _settled(lane) if lane.target.commits_in_tasks and lane.target.can_restore else [],
        between=Between.FAILED_BACK,
        refusal="of another history than the recovery log",
    ),
    Scenario(
        "table shared",
        "Another materialization is started on the tables of one that stands still.",
        lambda lane: _settled(lane) if lane.target.says_owner else [],
        between=Between.SHARED,
        refusal="is written by materialization",
    ),
    Scenario(
        "file changed between crash and restart",
        "The endpoint has an epoch that the recovery log has not, and the file now has another schema; then "
        "the schema is put back.",
        lambda lane: [Arm(lane.log("writing decided"))] if lane.target.commits_in_tasks else [],
        between=Between.FILE_CHANGED,
        refusal="by other rules, another schema or other fields than the file has now",
    ),
    Scenario(
        "sink rolled back",
        "The last epoch of a sink is taken back by the format's own means, which keep what the table says of "
        "itself.",
        lambda lane: _settled(lane) if lane.target.can_roll_back else [],
        between=Between.ROLLED_BACK,
        refusal="and had the rows of epoch|and by the recovery log it has committed rows up to epoch",
    ),
    Scenario(
        "source recreated",
        "The collection's table, or the topic, is removed, and another one of the same name has rows.",
        lambda lane: _settled(lane),
        between=Between.SOURCE_RECREATED,
        refusal="it was deleted and created again, or is another one elsewhere",
        is_of_source=True,
    ),
]

HOST_LOST = Scenario(
    "host lost",
    "The host is gone with all that was on its disk, and another one takes over.",
    _all(lambda lane: lane.did("decided")),
    between=Between.HOST_LOST,
    is_of_source=True,
)
"""Where the state survives it."""
