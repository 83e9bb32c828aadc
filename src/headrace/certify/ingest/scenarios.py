"""What is made to go wrong with an ingest server, and with what it stands on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from headrace.certify.ingest import clock
from headrace.certify.ingest.around import disk_heals, hostile_caller
from headrace.certify.ingest.journal import Broken
from headrace.certify.ingest.oracle import some
from headrace.certify.ingest.power import RECORDER
from headrace.certify.ingest.refusing_table import RefusingTable
from headrace.certify.ingest.stage import COLLECTION, Stage
from headrace.certify.ingest.writers import StockLoader
from headrace.certify.proxy import Proxy
from headrace.faults import Action
from headrace.model.tiers import Tier

EVERY_TIER = tuple(Tier)
DURABLE = (Tier.LOCAL_DISK, Tier.OBJECT_STORAGE, Tier.COMMITTED)
BEYOND_THE_DISK = (Tier.OBJECT_STORAGE, Tier.COMMITTED)


@dataclass(frozen=True)
class Scenario:
    name: str
    about: str
    """What a reader has to know of it, in one sentence."""
    tiers: tuple[Tier, ...]
    """That it says something about."""
    run: Callable[[Stage], None]
    points: tuple[str, ...]
    """One after the other, in one run; a quick one goes to the first of them."""
    fault: str
    """What happens at each of them."""


def killed_in_the_log(stage: Stage) -> None:
    with stage.serving() as server:
        stage.write(server.url)
        for point in stage.points:
            stage.reach(point, Tier.MEMORY)
            stage.kill(server)
            stage.restart(server)
        stage.finish(server)


def power_lost(stage: Stage) -> None:
    with stage.serving(load=RECORDER) as server:
        stage.write(server.url, retain=Tier.LOCAL_DISK)
        for point in stage.points:
            stage.reach(point, Tier.MEMORY)
            stage.kill(server, power=True)
            stage.restart(server)
        stage.finish(server)


def killed_at_an_upload(stage: Stage) -> None:
    """What the next process says of the same segments has to be so when the disk is lost."""
    with stage.serving() as server:
        stage.write(server.url)
        for point in stage.points:
            stage.hold("commits asking")
            stage.reach(point, Tier.LOCAL_DISK)
            stage.kill(server)
            stage.faults.arm("commits asking", Action.PARK)
            stage.restart(server)
            stage.journal.await_news(Tier.OBJECT_STORAGE, 20)
            stage.kill(server, disk=True)
            stage.restart(server)
        stage.finish(server)


def disk_lost(stage: Stage) -> None:
    """While nothing is committed, so that all that is left is in object storage."""
    with stage.serving() as server:
        stage.write(server.url)
        for point in stage.points:
            stage.hold("commits asking")
            stage.reach(point, Tier.LOCAL_DISK)
            stage.kill(server, disk=True)
            stage.restart(server)
        stage.finish(server)


def killed_while_fetching(stage: Stage) -> None:
    with stage.serving() as server:
        stage.write(server.url)
        for point in stage.points:
            stage.hold("commits asking")
            stage.journal.await_news(Tier.OBJECT_STORAGE, 50)
            stage.kill(server, disk=True)
            stage.lose_at_start(server, point)
            stage.restart(server)
        stage.finish(server)


def folder_restored(stage: Stage) -> None:
    """What came after the copy, and is in object storage, has to be there as if the disk were lost."""
    with stage.serving() as server:
        stage.write(server.url)
        for point in stage.points:
            stage.kill(server)
            stage.copy_folder(server)
            stage.restart(server)
            stage.journal.await_news(Tier.COMMITTED, 20)
            stage.reach(point, Tier.LOCAL_DISK)
            stage.kill(server, disk=True)
            stage.put_copy_back(server)
            server.start()
            stage.await_commits(server)
        stage.finish(server)


def killed_at_a_commit(stage: Stage) -> None:
    with stage.serving() as server:
        stage.write(server.url)
        for point in stage.points:
            stage.reach(point, Tier.OBJECT_STORAGE, occurrence=1)
            stage.kill(server)
            stage.restart(server)
        stage.finish(server)


def committer_killed(stage: Stage) -> None:
    with stage.serving() as server:
        stage.write(server.url)
        for point in stage.points:
            stage.faults.arm(point, Action.LOSE)
            stage.await_point(point)
            stage.surroundings.check_committed(stage.journal)
            stage.faults.clear()
            stage.journal.await_news(Tier.COMMITTED)
        stage.finish(server)


def sync_fails(stage: Stage) -> None:
    """The server says so, goes on elsewhere on the disk, and what it told then survives the power's end."""
    with stage.serving(load=RECORDER) as server:
        stage.write(server.url, retain=Tier.LOCAL_DISK)
        for point in stage.points:
            stage.faults.arm(point, Action.IO_ERROR, stage.draw.randint(1, 3))
            stage.await_point(point)
            stage.journal.await_news(Tier.LOCAL_DISK, 20)
            stage.hold("wal syncing")
            stage.kill(server, power=True)
            stage.restart(server)
        stage.finish(server)


def disk_full(stage: Stage) -> None:
    with stage.serving() as server:
        stage.write(server.url, retain=Tier.LOCAL_DISK)
        for point in stage.points:
            stage.faults.arm(point, Action.DISK_FULL, stage.draw.randint(1, 3))
            stage.await_point(point)
            stage.journal.await_news(Tier.LOCAL_DISK, 20)
            stage.kill(server)
            stage.restart(server)
        stage.finish(server)


def uploads_fail(stage: Stage) -> None:
    with stage.serving() as server:
        stage.write(server.url)
        for point in stage.points:
            stage.hold("commits asking")
            stage.faults.arm(point, Action.IO_ERROR)
            stage.await_point(point)
            stage.hold("uploader putting")
            stage.kill(server, disk=True)
            stage.restart(server)
        stage.finish(server)


def files_stay(stage: Stage) -> None:
    """A file that cannot be removed is not in the way of the next start."""
    with stage.serving() as server:
        stage.write(server.url)
        for point in stage.points:
            stage.faults.arm(point, Action.IO_ERROR)
            stage.await_point(point)
            stage.faults.arm("segment removed", Action.PARK, 10)
            stage.await_point("segment removed")
            stage.kill(server)
            stage.restart(server)
        stage.finish(server)


def one_stuck(stage: Stage) -> None:
    """The others go on and the log is released of it; a release brings all of it, each row once."""
    with stage.serving() as server:
        stage.write(server.url)
        stuck = StockLoader("stuck", server.url, "stuck", stage.journal)
        stage.writers.append(stuck)
        stuck.start()
        stage.await_committed("stuck")
        table = RefusingTable(stage.surroundings, "stuck")
        for point in stage.points:
            stage.faults.arm(point, Action.LOSE)
            table.refuse_until(lambda point=point: point in stage.faults.fired, point)  # type: ignore[misc]
            stage.kill(server, disk=True)
            stage.restart(server)
            table.await_quarantine(server)
            stage.journal.await_news(Tier.COMMITTED, 20)
            table.mend()
            table.release(server)
            stage.await_committed("stuck")
        stage.finish(server)


def clock_steps_back(stage: Stage) -> None:
    """Under clients that go on, and before a restart."""
    with stage.serving(load=clock.MODULE) as server:
        stage.write(server.url)
        clock.step_back(stage.faults)
        stage.journal.await_news(Tier.COMMITTED, 50)
        stage.reach("wal syncing", Tier.MEMORY)
        stage.kill(server)
        stage.restart(server)
        stage.finish(server)


def client_cut_off(stage: Stage) -> None:
    """While the server has writes that its clients have not heard of."""
    with stage.serving() as server, Proxy("127.0.0.1", server.port) as proxy:
        stage.write(f"grpc://{proxy.address}")
        for point in stage.points:
            stage.reach(point, Tier.MEMORY)
            proxy.stall()
            stage.faults.release(point)
            time.sleep(stage.draw.random() * 0.1)
            proxy.cut()
            proxy.heal()
            stage.journal.await_news(Tier.LOCAL_DISK)
            stage.faults.clear()
        stage.finish(server)


def replaced_and_woken(stage: Stage) -> None:
    """A server is frozen, another takes its place, and it wakes before that one has put anything."""
    with stage.serving("zombie") as zombie, Proxy("127.0.0.1", zombie.port) as proxy:
        stage.write(f"grpc://{proxy.address}")
        staying = StockLoader("staying", zombie.url, COLLECTION, stage.journal)
        staying.start()
        stage.journal.await_news(Tier.COMMITTED, 50)
        zombie.freeze()
        before = stage.journal.so_far()
        with stage.serving("successor") as successor:
            zombie.resume()
            stage.await_refusal(zombie, lambda: _told_beyond_the_disk(stage, "staying", before))
            proxy.target = ("127.0.0.1", successor.port)
            proxy.cut()
            stage.journal.await_news(Tier.COMMITTED, 50)
            staying.stop()
            staying.join()
            stage.finish(successor)
            _told_beyond_the_disk(stage, "staying", before)


def _told_beyond_the_disk(stage: Stage, writer: str, before: Collection[str]) -> None:
    told = [
        name
        for name, write in stage.journal.so_far().items()
        if name.startswith(writer)
        and name not in before
        and max(dict(write.told), default=Tier.MEMORY) >= Tier.OBJECT_STORAGE
    ]
    if told:
        raise Broken(f"told by a server that was replaced, of writes that only it has: {some(told)}")


SCENARIOS = (
    Scenario(
        "killed in the log",
        "The server is killed between the steps of its log.",
        EVERY_TIER,
        killed_in_the_log,
        ("wal writing", "wal synced", "wal written", "wal syncing", "wal creating", "wal removed"),
        "kill",
    ),
    Scenario(
        "power lost",
        "The server is killed, and files are cut back to what was synced.",
        DURABLE,
        power_lost,
        ("wal syncing", "wal creating", "wal written"),
        "power lost",
    ),
    Scenario(
        "disk lost",
        "The server's disk is gone, while nothing was committed, so that all that is left is uploaded.",
        BEYOND_THE_DISK,
        disk_lost,
        ("uploader putting", "object put", "uploader put"),
        "disk lost",
    ),
    Scenario(
        "killed at a commit",
        "The server is killed, with its committer, around a commit of the table.",
        DURABLE,
        killed_at_a_commit,
        (
            "committer committing",
            "committer committed",
            "committer written",
            "commits asking",
            "commits answered",
        ),
        "kill",
    ),
    Scenario(
        "committer killed",
        "The process that commits to tables is killed, and the server goes on.",
        DURABLE,
        committer_killed,
        (
            "committer read",
            "committer written",
            "committer committing",
            "committer committed",
            "committer answering",
        ),
        "committer killed",
    ),
    Scenario(
        "killed at an upload",
        "The server is killed around an upload, and once it has gone on its disk is gone.",
        BEYOND_THE_DISK,
        killed_at_an_upload,
        ("uploader putting", "object put", "owner checking"),
        "kill, then disk lost",
    ),
    Scenario(
        "killed while fetching",
        "A server that fetches what another had uploaded, whose disk is gone, is killed on the way.",
        BEYOND_THE_DISK,
        killed_while_fetching,
        ("segment fetched", "term claimed", "identity writing"),
        "disk lost, then kill",
    ),
    Scenario(
        "folder restored",
        "The server's data folder is replaced by an older copy of it.",
        BEYOND_THE_DISK,
        folder_restored,
        ("uploader put", "commits answered"),
        "kill, then an old copy",
    ),
    Scenario(
        "replaced and woken",
        "A server sleeps, another takes its place, and it wakes up.",
        BEYOND_THE_DISK,
        replaced_and_woken,
        (),
        "frozen, replaced and woken",
    ),
    Scenario(
        "sync fails",
        "A sync of the log fails, and later the power is gone.",
        DURABLE,
        sync_fails,
        ("wal syncing",),
        "EIO, then power lost",
    ),
    Scenario(
        "disk full",
        "There is no room for the log for a while.",
        DURABLE,
        disk_full,
        ("wal writing", "wal creating"),
        "ENOSPC, then kill",
    ),
    Scenario(
        "uploads fail",
        "A put fails, and later the disk is gone.",
        BEYOND_THE_DISK,
        uploads_fail,
        ("object putting", "object put"),
        "EIO, then disk lost",
    ),
    Scenario(
        "files stay",
        "A file of the log cannot be removed.",
        DURABLE,
        files_stay,
        ("wal removing",),
        "EIO, then kill",
    ),
    Scenario(
        "one stuck",
        "One collection cannot be committed, and the server dies, with its disk, while it keeps that apart.",
        BEYOND_THE_DISK,
        one_stuck,
        ("side log put", "side log recorded", "quarantine entered"),
        "a table that refuses, then disk lost",
    ),
    Scenario(
        "clock steps back",
        "The clock is set back by an hour under clients that go on, and there is a kill.",
        EVERY_TIER,
        clock_steps_back,
        (),
        "clock an hour back, then kill",
    ),
    Scenario(
        "disk heals",
        "The disk of the log is full, also when the server starts, and has room again.",
        DURABLE,
        disk_heals,
        (),
        "no room, kill, and room again",
    ),
    Scenario(
        "hostile caller",
        "Somebody sends malformed views, deep JSON, huge schemas and endless nulls.",
        EVERY_TIER,
        hostile_caller,
        (),
        "hostile messages",
    ),
    Scenario(
        "client cut off",
        "A client's connection stalls and is cut, while the server has writes that it has not heard of.",
        EVERY_TIER,
        client_cut_off,
        ("wal writing", "wal synced"),
        "stall, then cut",
    ),
)
