"""Spark's checkpoint folder of a query: what it says, and how it is made anew from a runtime checkpoint.

    metadata        {"id": "..."}, the identity of the query: we call it the lineage
    offsets/N       where epoch N ends in each source; written before the epoch runs
    commits/N       epoch N is done

A runtime checkpoint holds the offsets of an epoch and of the one before, word for word, so that this folder
can be made from it: Spark then goes on with the next epoch, at the right place. The folder is only ever read
by the driver, so it can be on the driver's own disk, and be lost with it.

Spark writes an entry under another name and renames it, so a driver that is killed leaves a whole one or
none. But it syncs nothing: after a loss of power an entry may be empty or cut off, or not fit the checksum
beside it. Spark would not start with such a one, so the folder is made anew.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from headrace.errors import ConfigError
from headrace.model.checkpoints import JsonObject

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
_VERSION = re.compile(r"v\d+")
_CHECKSUMS = b"crc\0"  # how Hadoop's files of them begin


@dataclass(frozen=True)
class OffsetEntry:
    """An entry of Spark's offset log: a version, a line of metadata, and a line for each source."""

    text: str

    @property
    def planned_at(self) -> datetime:
        """When Spark planned the epoch; the same when it is run again."""
        milliseconds = json.loads(self.text.splitlines()[1])["batchTimestampMs"]
        return datetime.fromtimestamp(milliseconds / 1000, UTC)

    @property
    def sources(self) -> list[str]:
        """Where the epoch ends in each source, as the source writes it; `-` if nothing of it was read yet."""
        return self.text.splitlines()[2:]

    def position(self, index: int) -> JsonObject | None:
        """Returns where the epoch ends in a source; None if nothing of it was read yet."""
        line = self.sources[index]
        found: JsonObject | None = None if line == "-" else json.loads(line)
        return found


@dataclass(frozen=True)
class CheckpointFolder:
    """The identity, offsets and commits that a folder holds."""

    lineage: str = ""
    """Empty: there is no folder."""
    offsets: Mapping[int, str] = field(default_factory=dict)
    commits: frozenset[int] = frozenset()
    is_damaged: bool = False
    """Whether Spark could not read what it would begin with."""

    def follows(self, lineage: str, done: int, offsets: Mapping[int, str]) -> bool:
        """Whether Spark would go on after epoch `done`, with what was planned for the next one, if any."""
        if self.is_damaged or self.lineage != lineage:
            return False
        if any(self.offsets.get(epoch) != text for epoch, text in offsets.items()):
            return False
        planned = max(self.offsets, default=-1)
        last = max(self.commits, default=-1)
        # Where done is the last that was planned, it must be known to be done; otherwise Spark finds out.
        return last == done and planned in (done, done + 1)


def read_folder(path: Path) -> CheckpointFolder:
    try:
        identity = json.loads((path / "metadata").read_text())["id"]
    except FileNotFoundError:
        if _numbered(path / "offsets"):
            raise ConfigError(
                f"checkpoint folder {path} has lost its file 'metadata': remove the folder"
            ) from None
        return CheckpointFolder()
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"checkpoint folder {path}: its file 'metadata' is damaged: remove the folder"
        ) from None
    offsets = _readable(_numbered(path / "offsets"))
    commits = _readable(_numbered(path / "commits"))
    # Spark begins with the last two offsets and the last commit.
    first = [offsets[number] for number in sorted(offsets)[-2:]]
    is_damaged = None in first or (bool(commits) and commits[max(commits)] is None)
    # One that was cut off at the end of a line lacks sources.
    is_damaged |= len({text.count("\n") for text in first if text is not None}) > 1
    return CheckpointFolder(
        identity,
        {number: text for number, text in offsets.items() if text is not None},
        frozenset(number for number, text in commits.items() if text is not None),
        is_damaged,
    )


def forget_first_snapshots(folder: Path) -> None:
    """Removes where Iceberg sources began, which they find anew.

    Only the first epoch begins there. But a run to the end of what is there looks for its end from there on,
    and fails when that snapshot has expired.
    """
    for path in folder.glob("sources/*/offsets/0"):
        lines = path.read_text().splitlines()
        if lines and "snapshot_id" in lines[-1]:
            for file in (path, path.with_name(f".{path.name}.crc")):
                file.unlink(missing_ok=True)


def forget_planned(folder: Path, epoch: int) -> None:
    """Removes an epoch that was planned and not begun, so that Spark plans it anew."""
    for name in (f".{epoch}.crc", str(epoch)):
        (folder / "offsets" / name).unlink(missing_ok=True)


def write_folder(path: Path, lineage: str, done: int, offsets: Mapping[int, str]) -> None:
    """Makes the folder anew, so that Spark goes on after epoch `done`; -1: with the first.

    `offsets` are those of `done`, of the epoch before it, and of the one after it if that was begun.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    for old in (unfinished, path):
        if old.exists():
            shutil.rmtree(old)
    for name in ("offsets", "commits"):
        (unfinished / name).mkdir(parents=True)
    for epoch, text in offsets.items():
        (unfinished / "offsets" / str(epoch)).write_text(text)
    if done >= 0:
        (unfinished / "commits" / str(done)).write_text(_COMMIT)
    (unfinished / "metadata").write_text(json.dumps({"id": lineage}))
    unfinished.rename(path)


def read_offsets(path: Path, epoch: int) -> str:
    """Reads the offsets of an epoch that is being run."""
    return (path / "offsets" / str(epoch)).read_text()


def _readable(entries: Mapping[int, Path]) -> dict[int, str | None]:
    """The text of each entry; None of one that is not whole."""
    return {number: _text(file) for number, file in entries.items()}


def _text(file: Path) -> str | None:
    content = file.read_bytes()
    checksums = file.with_name(f".{file.name}.crc")
    if checksums.exists() and not _fits(content, checksums.read_bytes()):
        return None
    try:
        text = content.decode()
        version, metadata, *sources = text.split("\n")
        if not _VERSION.fullmatch(version):
            return None
        # A source may write what it likes, but most write JSON.
        for line in (metadata, *(line for line in sources if line[:1] in ("", "{", "["))):
            json.loads(line)
    except ValueError:
        return None
    return text


def _fits(content: bytes, checksums: bytes) -> bool:
    """Hadoop keeps a CRC for each so many bytes; how many is in front of them."""
    header = len(_CHECKSUMS) + 4
    if len(checksums) < header or not checksums.startswith(_CHECKSUMS):
        return False
    (step,) = struct.unpack(">I", checksums[len(_CHECKSUMS) : header])
    if not step:
        return False
    pieces = (content[begin : begin + step] for begin in range(0, len(content), step))
    return checksums[header:] == b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)


def _numbered(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    return {int(file.name): file for file in folder.iterdir() if file.name.isdecimal()}
