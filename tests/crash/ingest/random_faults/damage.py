"""What becomes of a dead server's files, or of those that it stands on, before it is started again."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from headrace.certify.ingest.power import lose_power
from headrace.wal.records import SEGMENT_HEADER_BYTES
from headrace.wal.segments import number_of, segment_files
from tests.crash.ingest.random_faults.copies import Promise, copy, remove
from tests.crash.ingest.random_faults.scene import Scene

_PAGE = 4096


@dataclass(frozen=True)
class Outcome:
    """What a server may do about it, and what it then has lost."""

    undo: Callable[[], None] | None = None
    """It may refuse to go on, and goes on when this was called; None: it has to go on."""
    lost: frozenset[Promise] = frozenset()
    """Promises of LOCAL_DISK that are void if it goes on."""
    is_of_tables: bool = False
    """The tables are those of an older day, if it goes on."""
    is_of_store: bool = False
    """The store is one of an older day, which may lack segments in the middle."""
    needs_store: bool = False
    """It cannot start without its store."""
    is_doubtful: bool = False
    """Whether it goes on is known only when something was committed."""
    text: str = ""

    def __str__(self) -> str:
        return self.text


Damage = Callable[[Scene, random.Random], Outcome | None]
"""None: it could not be done."""


def nothing(_: Scene, __: random.Random) -> Outcome:
    return Outcome()


def power_lost(scene: Scene, _: random.Random) -> Outcome:
    return Outcome(text=f"{lose_power(scene.segments, scene.faults)} bytes")


def torn(scene: Scene, draw: random.Random) -> Outcome:
    """Of what was not synced some reached the disk, and not always the beginning of it."""
    done = []
    for path in segment_files(scene.segments):
        size, synced = path.stat().st_size, _synced(path, scene)
        if size <= synced:
            continue
        place = draw.randint(synced, size - 1)
        match draw.choice(["cut", "zeros", "noise"]):
            case "cut":
                os.truncate(path, place)
            case kind:
                length = min(size - place, draw.choice([1, 8, 100, _PAGE]))
                with path.open("r+b") as file:
                    file.seek(place)
                    file.write(bytes(length) if kind == "zeros" else draw.randbytes(length))
        done.append(f"{path.name} at {place} of {synced} to {size}")
    return Outcome(text=", ".join(done))


def moved(scene: Scene, draw: random.Random) -> Outcome:
    """To another place of the same disk."""
    before = scene.server.data
    after = before.with_name(f"data-{scene.starts}-{draw.randrange(100)}")
    for path in segment_files(scene.segments):
        with suppress(FileNotFoundError):
            _noted(path, scene).rename(_noted(after / "wal" / path.name, scene))
    before.rename(after)
    scene.server.data = after
    return Outcome(text=str(after.name), needs_store=True)


def copied(scene: Scene, _: random.Random) -> Outcome:
    """As by a backup of this moment that was restored: the same bytes in other files."""
    data = scene.server.data
    other = data.with_name(f"{data.name}-copied")
    copy(data, other)
    shutil.rmtree(data)
    other.rename(data)
    return Outcome(needs_store=True)


def folder_lost(scene: Scene, _: random.Random) -> Outcome | None:
    if not store_is_sound(scene):
        return None
    lost = _everything_on_the_disk(scene)
    shutil.rmtree(scene.server.data)
    return Outcome(lost=lost, needs_store=True)


def identity_lost(scene: Scene, _: random.Random) -> Outcome | None:
    """It says to which log the files belong; without it they are put aside."""
    if not store_is_sound(scene):
        return None
    lost = _everything_on_the_disk(scene)
    file = scene.server.data / "identity.json"
    saved = file.read_bytes()
    file.unlink()

    def undo() -> None:
        file.write_bytes(saved)

    return Outcome(undo, lost=lost, needs_store=True, is_doubtful=True)


def old_copy_restored(scene: Scene, _: random.Random) -> Outcome | None:
    """Only one that the store shows to be old, or from the life of this server.

    Nobody could tell otherwise which LSNs have been given away since.
    """
    kept = scene.copies.get("data")
    if kept is None or not store_is_sound(scene):
        return None
    newest = max(map(number_of, segment_files(kept.path / "wal")), default=0)
    if kept.starts < scene.starts and _newest_object(scene) <= newest:
        return None
    lost = _everything_on_the_disk(scene) - kept.promises
    data = scene.server.data
    aside = data.with_name(f"{data.name}-newest")
    remove(aside)
    data.rename(aside)
    copy(kept.path, data)

    def undo() -> None:
        shutil.rmtree(data)
        aside.rename(data)

    outcome = Outcome(undo, lost=lost, needs_store=True, is_doubtful=True)
    return replace(outcome, text=f"which ends with segment {newest}, made in start {kept.starts}")


def segments_lost(scene: Scene, draw: random.Random) -> Outcome | None:
    """Some of the oldest or of the middle, or the newest, if the store has it."""
    files = segment_files(scene.segments)
    uploaded = [path for path in files if number_of(path) <= _newest_object(scene)]
    if not uploaded:
        return None
    match draw.choice(["oldest", "middle", "newest"]):
        case "oldest":
            chosen = files[: draw.randint(1, max(len(files) - 1, 1))]
            if chosen[-1] not in uploaded and chosen[-1] == files[-1]:
                return None
        case "middle":
            chosen = [draw.choice(uploaded)]
        case _:
            chosen = uploaded[-1:] if uploaded[-1] == files[-1] else []
    if not chosen:
        return None
    aside = scene.server.data.with_name("segments-lost")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for path in chosen:
        path.rename(aside / path.name)

    def undo() -> None:
        for path in chosen:
            (aside / path.name).replace(path)

    names = ", ".join(str(number_of(path)) for path in chosen)
    there = f"{number_of(files[0])} to {number_of(files[-1])}"
    return Outcome(undo, needs_store=True, is_doubtful=True, text=f"{names} of {there}")


def object_damaged(scene: Scene, draw: random.Random) -> Outcome | None:
    """One that is also on the disk: cut off, changed, or gone."""
    folder = scene.outside.objects
    if folder is None:
        return None
    both = [folder / "wal" / path.name for path in segment_files(scene.segments)]
    both = [path for path in both if path.exists()]
    if not both:
        return None
    path = draw.choice(both)
    saved = path.read_bytes()
    kind = draw.choice(["cut off", "changed", "gone"])
    match kind:
        case "cut off":
            _replace(path, saved[: draw.randrange(len(saved))])
        case "changed":
            place = draw.randrange(SEGMENT_HEADER_BYTES, len(saved))
            flipped = bytes([saved[place] ^ 1 << draw.randrange(8)])
            _replace(path, saved[:place] + flipped + saved[place + 1 :])
        case _:
            path.unlink()

    def undo() -> None:
        _replace(path, saved)

    return Outcome(undo, is_doubtful=True, text=f"{path.name} is {kind}")


def store_restored(scene: Scene, _: random.Random) -> Outcome | None:
    outcome = _restored("store", scene.outside.objects, scene)
    return outcome and replace(outcome, is_of_store=True)


def catalog_restored(scene: Scene, _: random.Random) -> Outcome | None:
    outcome = _restored("catalog", scene.outside.catalog_file, scene)
    return outcome and replace(outcome, is_of_tables=True)


def _restored(part: str, place: Path | None, scene: Scene) -> Outcome | None:
    kept = scene.copies.get(part)
    if kept is None or place is None or not store_is_sound(scene):
        return None
    aside = place.with_name(f"{place.name}-newest")
    remove(aside)
    place.rename(aside)
    copy(kept.path, place)

    def undo() -> None:
        remove(place)
        aside.rename(place)

    return Outcome(undo, is_doubtful=True, text=f"made in start {kept.starts}")


DAMAGES: dict[str, Damage] = {
    "nothing": nothing,
    "power lost": power_lost,
    "torn files": torn,
    "folder moved": moved,
    "folder copied": copied,
    "folder lost": folder_lost,
    "identity lost": identity_lost,
    "old copy restored": old_copy_restored,
    "segments lost": segments_lost,
    "object damaged": object_damaged,
    "store restored": store_restored,
    "catalog restored": catalog_restored,
}


def store_is_sound(scene: Scene) -> bool:
    """Whether the store has all that it took: no lie of its own is left in it."""
    if scene.lied_through is None:
        return True
    numbers = _objects(scene)
    if numbers and numbers[0] > scene.lied_through and numbers[-1] - numbers[0] + 1 == len(numbers):
        scene.lied_through = None
    return scene.lied_through is None


def lie_is_over(scene: Scene) -> None:
    """Whatever the store was given until now may be missing or cut off there."""
    files = segment_files(scene.segments)
    scene.lied_through = max([*_objects(scene), *map(number_of, files)], default=0) + 1


def remove_lies(scene: Scene) -> None:
    """Has the server put again whatever it still has."""
    if scene.outside.objects is not None:
        for path in segment_files(scene.segments):
            (scene.outside.objects / "wal" / path.name).unlink(missing_ok=True)


def _objects(scene: Scene) -> list[int]:
    folder = scene.outside.objects
    if folder is None:
        return []
    return sorted(number_of(path) for path in (folder / "wal").glob("*.wal"))


def _newest_object(scene: Scene) -> int:
    return max(_objects(scene), default=0)


def _everything_on_the_disk(scene: Scene) -> frozenset[Promise]:
    scene.silence()
    return frozenset(scene.on_the_disk_only())


def _noted(path: Path, scene: Scene) -> Path:
    """Where the server says how much of a file is synced."""
    return scene.faults.folder / "synced" / quote(str(path), safe="")


def _synced(path: Path, scene: Scene) -> int:
    noted = _noted(path, scene)
    return int(noted.read_text()) if noted.exists() else 0


def _replace(path: Path, data: bytes) -> None:
    """With a file of its own: the server's may be the same one under another name."""
    aside = path.with_name(f"{path.name}.aside")
    aside.write_bytes(data)
    aside.replace(path)
