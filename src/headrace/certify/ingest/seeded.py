"""Which defect is noticed by which scenario."""

from __future__ import annotations

from dataclasses import dataclass

_MODULES = "headrace.certify.ingest.defects"
# Unless it was at the end of the log, the server misses it as well, and does not start.
_MISSING = "writes that are not there|had been synced"


@dataclass(frozen=True)
class Defect:
    """A module that is loaded into the server, and the least of a scenario that shows it."""

    scenario: str
    name: str
    text: str
    notice: str
    """A pattern in what is found; a run that fails for another reason has not noticed it."""
    points: tuple[str, ...] = ()
    """Of the scenario's; none: all of them."""

    @property
    def module(self) -> str:
        return f"{_MODULES}.{self.name}"


DEFECTS = (
    Defect(
        "killed in the log",
        "numbers_reused",
        "LSNs are reused after a restart",
        "LSNs of several writes",
        ("wal writing",),
    ),
    Defect(
        "killed in the log",
        "losses_unsaid",
        "a restart does not say which LSNs are lost",
        "neither in a table nor lost",
        ("wal writing",),
    ),
    Defect(
        "killed in the log",
        "producers_forgotten",
        "a restart forgets what producers have written",
        "more than once",
        ("wal synced",),
    ),
    Defect(
        "power lost",
        "told_before_sync",
        "LOCAL_DISK is told before the sync",
        "writes that are not there",
        ("wal syncing",),
    ),
    Defect(
        "disk lost",
        "told_before_put",
        "OBJECT_STORAGE is told before the put has returned",
        "writes that are not there",
        ("uploader putting",),
    ),
    Defect(
        "killed at a commit",
        "told_before_commit",
        "COMMITTED is told before the commit",
        "told to be committed too early",
        ("committer committing",),
    ),
    Defect(
        "killed at a commit",
        "watermark_apart",
        "the watermark is not set in the commit",
        "rows twice",
        ("committer committed",),
    ),
    Defect(
        "committer killed",
        "watermark_apart",
        "the watermark is not set in the commit",
        "rows twice",
        ("committer committed",),
    ),
    Defect(
        "killed at an upload",
        "uploads_assumed",
        "a restart takes what is on its disk for uploaded",
        "writes that are not there|are needed, and are",
        ("uploader putting",),
    ),
    Defect(
        "killed while fetching",
        "identity_first",
        "a data folder is taken for whole before all is fetched",
        "writes that are not there",
        ("segment fetched",),
    ),
    Defect(
        "folder restored",
        "old_copy_unnoticed",
        "a data folder is not compared with its store",
        "over before any write reached|the server has forgotten producer",
    ),
    Defect(
        "replaced and woken",
        "owner_unchecked",
        "a server does not look whether another has taken over",
        "told by a server that was replaced",
    ),
    Defect("sync fails", "sync_error_ignored", "the error of a sync is ignored", _MISSING),
    Defect(
        "disk full",
        "write_error_ignored",
        "the error of a write to the log is ignored",
        _MISSING,
        ("wal writing",),
    ),
    Defect(
        "uploads fail",
        "put_error_ignored",
        "the error of a put is ignored",
        "writes that are not there",
        ("object putting",),
    ),
    Defect(
        "files stay",
        "mark_unmoved",
        "segments are removed, and the low-water mark is not moved",
        "are needed, and are",
    ),
    Defect(
        "one stuck",
        "side_log_unread",
        "a quarantine ends without what is in the side log",
        "writes that are not there",
        ("side log put",),
    ),
    Defect(
        "clock steps back",
        "age_by_clock",
        "a write with an older time is taken for a duplicate",
        "writes that are not there|committed too early",
    ),
    Defect(
        "disk heals",
        "full_disk_ends_start",
        "a server does not start on a full disk",
        "the server ended with",
    ),
    Defect(
        "hostile caller",
        "sizes_unchecked",
        "a schema may be of any size",
        "takes a schema of eight megabytes",
    ),
    Defect(
        "client cut off",
        "sessions_forgotten",
        "a new stream begins as if its producer had written nothing",
        "more than once",
        ("wal synced",),
    ),
)
