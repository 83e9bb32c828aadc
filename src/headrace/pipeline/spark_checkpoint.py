"""Spark's checkpoint folder of a query: what it says, and how it is made anew from a runtime checkpoint.

    metadata        {"id": "..."}, the identity of the query: we call it the lineage
    offsets/N       where epoch N ends in each source; written before the epoch runs
    commits/N       epoch N is done

A runtime checkpoint holds the offsets of an epoch and of the one before, word for word, so that this folder
can be made from it: Spark then goes on with the next epoch, at the right place. The folder is only ever read
by the driver, so it can be on the driver's own disk, and be lost with it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import ConfigError

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@dataclass(frozen=True)
class CheckpointFolder:
    """What a folder says."""

    lineage: str = ""
    """Empty: there is no folder."""
    offsets: Mapping[int, str] = field(default_factory=dict)
    commits: frozenset[int] = frozenset()

    def follows(self, lineage: str, done: int, offsets: Mapping[int, str]) -> bool:
        """Whether Spark would go on after epoch `done`, with what was planned for the next one, if any."""
        if self.lineage != lineage or any(self.offsets.get(epoch) != text for epoch, text in offsets.items()):
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
    offsets = {number: file.read_text() for number, file in _numbered(path / "offsets").items()}
    return CheckpointFolder(identity, offsets, frozenset(_numbered(path / "commits")))


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
    """Of an epoch that is being run."""
    return (path / "offsets" / str(epoch)).read_text()


def _numbered(folder: Path) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    return {int(file.name): file for file in folder.iterdir() if file.name.isdecimal()}
