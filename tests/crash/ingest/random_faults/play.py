"""Plays a schedule of faults to a server under load, and has the oracle look on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack

from headrace.certify.ingest.journal import Broken
from headrace.faults import Action
from headrace.model.tiers import Tier
from tests.crash.ingest.random_faults.damage import DAMAGES, Outcome, lie_is_over, remove_lies
from tests.crash.ingest.random_faults.outside import Outside
from tests.crash.ingest.random_faults.points import COMMITTER_POINTS, SERVER_POINTS
from tests.crash.ingest.random_faults.scene import Scene
from tests.crash.ingest.random_faults.schedule import Step, steps
from tests.crash.ingest.random_faults.troubles import TROUBLES

# Without a folder for its store, or with a disk that fails, a server ends, and whoever watches it starts it.
_MAY_NOT_START = {"the store is away", "the disk fails"}
# Bounds of waits for something that need not come while there is trouble.
_A_WHILE = 3.0
_LOOK_EVERY = 0.01


def play(outside: Outside, seed: int, kills: int, modules: tuple[str, ...] = ()) -> Scene:
    """Raises what the oracle finds, with the schedule and what came of it."""
    scene = Scene(outside, seed, modules)
    try:
        with scene.playing():
            for step in steps(seed):
                if scene.kills >= kills:
                    break
                scene.note(str(step))
                _play(step, scene)
    except BaseException as error:
        error.add_note("\n".join([f"Random faults of seed {seed}, {kills} kills:", *scene.history]))
        raise
    return scene


def _play(step: Step, scene: Scene) -> None:
    draw = random.Random(step.seed)
    if step.copies_first:
        _copy(step.copies, scene)
    with ExitStack() as trouble:
        trouble.enter_context(TROUBLES[step.trouble](scene, draw))
        if draw.random() < 0.3:
            scene.check_committed()
        _kill(step.moment, draw, scene)
        scene.faults.clear()
        if not step.lasts:
            trouble.close()
            scene.faults.clear()
        scene.check_committed()
        if not step.copies_first:
            _copy(step.copies, scene)
        outcome = DAMAGES[step.damage](scene, draw)
        if outcome is None:
            scene.note(f"{step.damage}: not possible now")
            outcome = Outcome()
        elif outcome.text:
            scene.note(f"{step.damage}: {outcome}")
        for _ in range(step.false_starts):
            _start_falsely(draw, scene)
        has_begun = _start_in_trouble(scene) if step.lasts else False
    scene.faults.clear()
    _come_back(outcome, has_begun, step, scene)


def _copy(part: str, scene: Scene) -> None:
    if part == "nothing" or scene.outside.blocked:
        return
    place = {
        "data": scene.server.data,
        "catalog": scene.outside.catalog_file,
        "store": scene.outside.objects,
    }[part]
    if place is not None:
        scene.copies.make(part, place, scene.on_the_disk_only(), scene.life)


def _kill(moment: str, draw: random.Random, scene: Scene) -> None:
    if moment == "after a notice":
        tier = draw.choice(list(Tier))
        scene.journal.hears(tier, draw.randint(1, 60), _A_WHILE)
        time.sleep(draw.random() * (0.3 if tier is Tier.COMMITTED else 0.05))
    elif moment == "at a point":
        point = draw.choice(SERVER_POINTS)
        scene.faults.arm(point, Action.LOSE, _occurrence(point, draw))
        _await(lambda: not scene.server.is_running)
    else:
        point = draw.choice(SERVER_POINTS + COMMITTER_POINTS)
        scene.faults.arm(point, Action.PARK, _occurrence(point, draw))
        _await(lambda: point in scene.faults.parked)
        scene.journal.hears(Tier.MEMORY, draw.randint(1, 10), 0.5)
    if moment != "after a notice":
        scene.note(f"{point}{'' if point in scene.faults.fired else ' was not reached'}")
    scene.kill()


def _occurrence(point: str, draw: random.Random) -> int:
    return draw.randint(1, 20 if point.startswith("wal") else 3)


def _start_falsely(draw: random.Random, scene: Scene) -> None:
    """Starts a server that is killed on the way, if it does not refuse before that."""
    if draw.random() < 0.5:
        point = draw.choice(SERVER_POINTS)
        scene.faults.arm(point, Action.LOSE, draw.randint(1, 2))
        scene.begin()
        _await(lambda: not scene.server.is_running)
    else:
        scene.begin()
        time.sleep(draw.random() * 2.0)
    if scene.server.is_running or scene.server.process.returncode < 0:
        scene.kill()
    scene.faults.disarm()


def _start_in_trouble(scene: Scene) -> bool:
    """Returns whether the server runs, be it that it has started or not."""
    scene.before_start()
    scene.begin()
    if scene.is_ready(_A_WHILE):
        scene.journal.hears(Tier.LOCAL_DISK, 20, _A_WHILE)
    return scene.server.is_running


def _come_back(outcome: Outcome, has_begun: bool, step: Step, scene: Scene) -> None:
    """Now that the trouble is over, the server goes on, unless it may refuse to because of the damage."""
    is_ready = has_begun and scene.is_ready()
    if not is_ready:
        if step.lasts and not (outcome.undo or outcome.needs_store or step.trouble in _MAY_NOT_START):
            raise Broken(f"the server did not start:\n{scene.server.log_tail()}")
        if scene.server.is_running:
            raise Broken(f"the server does not come to an end of its start:\n{scene.server.log_tail()}")
        scene.begin()
        is_ready = scene.is_ready()
    if is_ready and _goes_on(outcome, scene):
        if outcome.is_of_tables:
            scene.forget_commits()
    else:
        if outcome.undo is None and scene.lied_through is None:
            raise Broken(f"the server does not go on:\n{scene.server.log_tail()}")
        scene.note(f"{step.damage} refused: {scene.last_words()}")
        _mend(outcome, scene)
    scene.check()


def _goes_on(outcome: Outcome, scene: Scene) -> bool:
    """Whether it does; from then on it is known what is lost."""
    is_doubtful = outcome.is_doubtful or outcome.lost or scene.lied_through is not None
    if not scene.comes_back(Tier.COMMITTED if is_doubtful else Tier.LOCAL_DISK):
        return False
    scene.released |= outcome.lost
    if outcome.is_of_store:
        lie_is_over(scene)
    return True


def _mend(outcome: Outcome, scene: Scene) -> None:
    """Does what a person does who reads what the server says, after which it has to go on."""
    if scene.server.is_running:
        scene.kill()
    if outcome.undo is not None:
        outcome.undo()
    if scene.lied_through is not None:
        remove_lies(scene)
    scene.begin()
    if not (scene.is_ready() and scene.comes_back()):
        raise Broken(f"the server does not go on with what it had:\n{scene.server.log_tail()}")


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _A_WHILE
    while not condition() and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)
