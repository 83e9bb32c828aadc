"""Where to go on: the endpoint outranks the log, and the log outranks Spark's folder."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import CheckpointConflict, ConfigError
from headrace.pipeline.resume import ResumePlan, check_definition, plan_resume, reconcile_sinks
from headrace.pipeline.runtime_checkpoint import (
    RuntimeCheckpoint,
    check_incarnations,
    check_sources,
    read_checkpoint,
    with_takeover_marker,
)
from headrace.spark.checkpoint import CheckpointFolder, read_folder, write_folder

SOURCES = ("collection headrace.orders",)


def at(epoch: int, lineage: str = "ours", run: str = "") -> RuntimeCheckpoint:
    """`run` tells two ways to plan an epoch from each other."""
    if epoch < 0:
        return RuntimeCheckpoint("sales", "", -1)
    offsets = {number: f"offsets {number}{run}" for number in (epoch - 1, epoch) if number >= 0}
    return RuntimeCheckpoint("sales", lineage, epoch, SOURCES, offsets)


def folder(done: int, planned: int | None = None, lineage: str = "ours") -> CheckpointFolder:
    last = done if planned is None else planned
    offsets = {number: f"offsets {number}" for number in range(last + 1)}
    return CheckpointFolder(lineage, offsets, frozenset(range(done + 1)))


NOTHING = CheckpointFolder()


def decide(
    logged: int, endpoint: list[RuntimeCheckpoint] | None, found: CheckpointFolder, lineage: str = "ours"
) -> ResumePlan:
    return plan_resume("sales", lineage, at(logged), endpoint, found)


def test_all_agree() -> None:
    start = decide(3, [at(3), at(3)], folder(3))
    assert (start.done.epoch, start.moves_log, start.rebuilds_folder) == (3, "", "")


def test_an_epoch_that_was_planned_and_not_begun_is_left_as_it_was_planned() -> None:
    assert not decide(3, [at(3)], folder(3, planned=4)).rebuilds_folder


def test_the_very_first_start() -> None:
    start = decide(-1, [at(-1), at(-1)], NOTHING)
    assert (start.done.epoch, start.offsets, start.moves_log) == (-1, {}, "")
    assert start.rebuilds_folder


def test_the_endpoint_keeps_no_checkpoint() -> None:
    start = decide(3, None, folder(3))
    assert (start.done.epoch, start.moves_log, start.rebuilds_folder) == (3, "", "")


def test_the_endpoint_committed_what_was_not_decided() -> None:
    """It is run again, for the other sinks; the endpoint will skip it."""
    start = decide(3, [at(4), at(4)], folder(3, planned=4))
    assert (start.done.epoch, start.moves_log, start.rebuilds_folder) == (3, "", "")


def test_some_shards_committed_what_was_not_decided_and_the_folder_is_gone() -> None:
    start = decide(3, [at(4), at(3)], NOTHING)
    assert start.done.epoch == 3
    assert start.offsets == {2: "offsets 2", 3: "offsets 3", 4: "offsets 4"}
    assert not start.moves_log
    assert start.ahead == at(4)


def test_an_epoch_is_finished_by_the_rules_that_it_was_begun_by() -> None:
    ahead = replace(at(4), content="one")
    check_definition("sales", None, "two")
    check_definition("sales", ahead, "one")
    check_definition("sales", at(4), "two")  # a checkpoint of before there were digests
    with pytest.raises(ConfigError, match="some shards have committed epoch 4 by other rules"):
        check_definition("sales", ahead, "two")


def test_the_folder_planned_the_next_epoch_otherwise_than_a_shard_committed_it() -> None:
    found = CheckpointFolder("ours", {3: "offsets 3", 4: "another end"}, frozenset({3}))
    start = decide(3, [at(4), at(3)], found)
    assert start.rebuilds_folder
    assert start.offsets[4] == "offsets 4"


def test_the_folder_is_gone() -> None:
    start = decide(3, [at(3)], NOTHING)
    assert start.offsets == {2: "offsets 2", 3: "offsets 3"}
    assert start.rebuilds_folder


@pytest.mark.parametrize("found", [folder(1), folder(3, planned=5), folder(5), folder(2, planned=3)])
def test_the_folder_is_behind_or_ahead(found: CheckpointFolder) -> None:
    start = decide(3, [at(3)], found)
    assert start.done.epoch == 3
    assert start.rebuilds_folder


def test_the_endpoint_was_restored_from_an_older_dump() -> None:
    start = decide(5, [at(2), at(2)], folder(5))
    assert start.done.epoch == 2
    assert start.is_rewound
    assert start.moves_log == "the endpoint stands at epoch 2, and epoch 5 had been decided"
    assert start.rebuilds_folder


def test_the_endpoint_was_emptied() -> None:
    start = decide(5, [at(-1), at(-1)], folder(5))
    assert (start.done.epoch, start.is_rewound, start.offsets) == (-1, True, {})


def test_the_log_was_restored_from_an_older_copy() -> None:
    start = decide(1, [at(4), at(4)], folder(4))
    assert start.done.epoch == 4
    assert not start.is_rewound
    assert start.moves_log == "the endpoint stands at epoch 4, of which the recovery log knows nothing"
    assert not start.rebuilds_folder


def test_the_log_is_lost() -> None:
    """A new log has a lineage of its own, in which nothing was decided."""
    start = decide(-1, [at(0), at(0)], NOTHING, lineage="new")
    assert (start.lineage, start.done.epoch) == ("ours", 0)
    assert start.moves_log


def test_another_lineage_in_the_endpoint_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'sales'.* lineage theirs, and the recovery log is of ours"):
        decide(3, [at(7, "theirs")], folder(3))


def test_another_lineage_in_the_folder_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="is of lineage theirs, not of ours"):
        decide(3, [at(3)], folder(3, lineage="theirs"))


def test_shards_of_different_moments_are_refused() -> None:
    with pytest.raises(CheckpointConflict, match="epochs 1 and 3"):
        decide(3, [at(1), at(3)], folder(3))
    with pytest.raises(CheckpointConflict):
        decide(3, [at(3), at(3, run=" otherwise")], folder(3))


def test_checkpoints_are_read_as_they_were_written() -> None:
    assert read_checkpoint(at(4).to_json(), "sales", "endpoint") == at(4)
    assert "content" not in at(4).to_json()
    with_content = replace(at(4), content="one")
    assert read_checkpoint(with_content.to_json(), "sales", "endpoint") == with_content
    assert read_checkpoint(with_takeover_marker(at(4).to_json(), "mine"), "sales", "endpoint") == at(4)
    assert read_checkpoint(with_takeover_marker({}, "mine"), "sales", "endpoint") == at(-1)
    assert read_checkpoint({}, "sales", "endpoint") == at(-1)
    assert at(-1).to_json() == {}
    with pytest.raises(ConfigError, match="that of materialization 'sales' and not of 'stock'"):
        read_checkpoint(at(4).to_json(), "stock", "endpoint")
    with pytest.raises(ConfigError, match="none of a pipeline's"):
        read_checkpoint({"offset": 3}, "sales", "endpoint")
    with pytest.raises(ConfigError, match="another version"):
        read_checkpoint({**at(4).to_json(), "version": 3}, "sales", "endpoint")


def test_other_sources_are_refused() -> None:
    check_sources(at(4), SOURCES, "endpoint")
    check_sources(at(-1), ("kafka topic orders",), "endpoint")
    with pytest.raises(ConfigError, match=r"endpoint stands in collection headrace\.orders and the file now"):
        check_sources(at(4), ("kafka topic orders",), "endpoint")


def entry(end: int) -> str:
    """As Spark writes where two sources end; longer than one checksum covers."""
    metadata = json.dumps(
        {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": {"x": "y" * 600}}
    )
    return f'v1\n{metadata}\n{{"snapshot_id":{end},"position":0}}\n{{"orders":{{"0":{end}}}}}'


def checksums(content: bytes) -> bytes:
    """As Hadoop writes them."""
    pieces = [content[begin : begin + 512] for begin in range(0, len(content), 512)]
    return b"crc\0" + struct.pack(f">{1 + len(pieces)}I", 512, *map(zlib.crc32, pieces))


def test_folders_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_folder(path) == NOTHING
    offsets = {number: entry(number) for number in (3, 4, 5)}
    write_folder(path, "ours", 4, offsets)
    (path / "offsets" / ".4.crc").write_bytes(checksums(offsets[4].encode()))
    (path / "offsets" / ".6.a1b2.tmp").write_text("v1")
    (path / "offsets" / ".7.crc").write_text("whose entry was never written")
    found = read_folder(path)
    assert found == CheckpointFolder("ours", offsets, frozenset({4}))
    assert found.follows("ours", 4, offsets)
    write_folder(path, "ours", -1, {})
    assert read_folder(path) == CheckpointFolder("ours")
    (path / "metadata").write_text("{")
    with pytest.raises(ConfigError, match="'metadata' is damaged"):
        read_folder(path)
    (path / "metadata").unlink()
    (path / "offsets" / "0").write_text("zero")
    with pytest.raises(ConfigError, match="has lost its file 'metadata'"):
        read_folder(path)


TORN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "without a source": lambda content: content[: content.rindex(b"\n")],
    "zeros": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("checksum", ["none", "of the whole", "empty", "half"])
@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("name", ["offsets/4", "offsets/5", "commits/4"])
def test_a_torn_entry_is_as_if_it_were_not_there(tmp_path: Path, name: str, torn: str, checksum: str) -> None:
    path = tmp_path / "checkpoint"
    offsets = {number: entry(number) for number in (3, 4, 5)}
    write_folder(path, "ours", 4, offsets)
    file = path / name
    whole = file.read_bytes()
    file.write_bytes(TORN[torn](whole))
    beside = {
        "of the whole": checksums(whole),
        "empty": b"",
        "half": checksums(whole)[:6],
    }
    if checksum in beside:
        file.with_name(f".{file.name}.crc").write_bytes(beside[checksum])
    found = read_folder(path)
    assert not found.follows("ours", 4, {3: offsets[3], 4: offsets[4]})
    done = replace(at(4), offsets={3: offsets[3], 4: offsets[4]})
    assert plan_resume("sales", "ours", done, [done], found).rebuilds_folder
    write_folder(path, "ours", 4, offsets)
    assert read_folder(path).follows("ours", 4, offsets)


def test_an_entry_that_does_not_fit_its_checksum_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    offsets = {number: entry(number) for number in (3, 4)}
    write_folder(path, "ours", 4, offsets)
    beside = path / "offsets" / ".4.crc"
    for wrong in (b"", b"crc\0", checksums(entry(3).encode()), b"crc\0\0\0\0\0", b"something else"):
        beside.write_bytes(wrong)
        assert not read_folder(path).follows("ours", 4, offsets)
    beside.write_bytes(checksums(offsets[4].encode()))
    assert read_folder(path).follows("ours", 4, offsets)


def test_the_log_outranks_sinks_that_stand_where_it_does_or_before() -> None:
    """One that stands before had no rows since."""
    assert reconcile_sinks("sales", "ours", at(3), None, {"lake": at(3), "files": at(1)}) is None
    endpoint = [at(3), at(3)]
    assert reconcile_sinks("sales", "ours", at(3), endpoint, {"lake": at(3)}) == endpoint


def test_a_sink_that_knows_more_than_the_log_is_refused() -> None:
    with pytest.raises(ConfigError, match="sink lake has epoch 4, and the recovery log ends with 3"):
        reconcile_sinks("sales", "ours", at(3), None, {"files": at(3), "lake": at(4)})
    with pytest.raises(ConfigError, match="sink lake was written by lineage theirs"):
        reconcile_sinks("sales", "ours", at(3), None, {"lake": at(2, "theirs")})


def test_a_lost_log_is_made_anew_from_sinks_that_agree() -> None:
    found = reconcile_sinks("sales", "new", at(-1), None, {"lake": at(3), "files": at(3)})
    start = plan_resume("sales", "new", at(-1), found, NOTHING)
    assert (start.done.epoch, start.lineage) == (3, "ours")
    assert start.moves_log
    assert reconcile_sinks("sales", "new", at(-1), [at(3), at(3)], {"lake": at(3)}) == [at(3), at(3)]
    assert reconcile_sinks("sales", "new", at(-1), None, {}) is None


@pytest.mark.parametrize("endpoint", [None, [at(3)], [at(-1)]])
def test_with_a_lost_log_sinks_that_do_not_agree_are_refused(
    endpoint: list[RuntimeCheckpoint] | None,
) -> None:
    with pytest.raises(ConfigError, match="is lost, and its sinks do not stand at one epoch"):
        reconcile_sinks("sales", "new", at(-1), endpoint, {"files": at(2), "lake": at(3)})


def test_with_a_lost_log_a_sink_that_has_nothing_is_refused_beside_one_that_has_something() -> None:
    """It may have been about to commit its first rows."""
    with pytest.raises(ConfigError, match=r"do not stand at one epoch \(files at none, lake at 5\): restore"):
        reconcile_sinks("sales", "new", at(-1), None, {"lake": at(5), "files": None})
    with pytest.raises(ConfigError, match=r"\(lake at none, the endpoint at 0\)"):
        reconcile_sinks("sales", "new", at(-1), [at(0)], {"lake": None})
    assert reconcile_sinks("sales", "new", at(-1), None, {"lake": None, "files": None}) is None
    assert reconcile_sinks("sales", "new", at(-1), [at(-1)], {"lake": None}) == [at(-1)]
    assert reconcile_sinks("sales", "ours", at(5), None, {"lake": at(5), "files": None}) is None


def test_a_sink_that_has_lost_its_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sink lake has nothing, and .* up to epoch 2: restore it"):
        reconcile_sinks("sales", "ours", at(5), None, {"lake": None}, had_rows={"lake": 2})
    with pytest.raises(
        ConfigError, match=r"sink lake stands at epoch 1, and .* up to epoch 2: it was restored"
    ):
        reconcile_sinks("sales", "ours", at(5), None, {"lake": at(1)}, had_rows={"lake": 2})
    assert reconcile_sinks("sales", "ours", at(5), None, {"lake": at(2)}, had_rows={"lake": 2}) is None


def test_with_a_lost_log_dead_letters_of_a_later_epoch_are_refused() -> None:
    """They are committed first, and few epochs have any."""
    with pytest.raises(ConfigError, match=r"\(lake at 4, dead letters at 5\)"):
        reconcile_sinks("sales", "new", at(-1), None, {"lake": at(4)}, dead=at(5))
    with pytest.raises(ConfigError, match=r"\(lake at none, dead letters at 0\)"):
        reconcile_sinks("sales", "new", at(-1), None, {"lake": None}, dead=at(0))
    assert reconcile_sinks("sales", "new", at(-1), None, {"lake": at(4)}, dead=at(2)) == [at(4)]


def test_sinks_that_went_back_do_not_follow_an_endpoint_that_comes_forward_again() -> None:
    """The right dump was restored after the wrong one had been gone by."""
    with pytest.raises(
        ConfigError, match=r"stands at epoch 5, .* ends with epoch 2, so that lake would lack"
    ):
        reconcile_sinks("sales", "ours", at(2), [at(5)], {"lake": at(1)})
    with pytest.raises(ConfigError, match="so that dead letters would lack what is between"):
        reconcile_sinks("sales", "ours", at(2), [at(5)], {}, went_back=True)
    assert reconcile_sinks("sales", "ours", at(2), [at(5)], {}) == [at(5)]
    assert reconcile_sinks("sales", "ours", at(2), [at(3)], {"lake": at(2)}) == [at(3)], "it is run again"


def test_a_log_in_which_nothing_was_decided_yet_is_not_lost() -> None:
    """It crashed when some shards, or all, had committed the first epoch of all."""
    for endpoint in ([at(0), at(-1)], [at(-1), at(0)], [at(0), at(0)]):
        assert reconcile_sinks("sales", "ours", at(-1), endpoint, {"lake": None, "files": None}) == endpoint
    with pytest.raises(ConfigError, match="is lost"):
        reconcile_sinks("sales", "new", at(-1), [at(0), at(-1)], {"lake": None})


def history(last: int, run: str = "", since: int = 0) -> dict[int, RuntimeCheckpoint]:
    """The checkpoints of all epochs up to the last; those from `since` on were planned in another `run`."""
    found: dict[int, RuntimeCheckpoint] = {}
    link = ""
    for epoch in range(last + 1):
        found[epoch] = at(epoch, run=run if epoch >= since else "").linked_to(link)
        link = found[epoch].link
    return found


def test_an_epoch_that_is_run_again_has_the_same_link() -> None:
    assert history(3) == history(3)
    assert history(3)[3] == read_checkpoint(history(3)[3].to_json(), "sales", "endpoint")
    changed = [
        replace(at(3), lineage="other"),
        replace(at(3), content="other"),
        replace(at(3), incarnations=("other",)),
        at(3, run="other"),
    ]
    links = {one.linked_to(history(2)[2].link).link for one in [at(3), *changed]}
    assert len(links) == 5
    assert at(3).linked_to("other").link not in links


def test_what_an_older_version_wrote_is_written_as_it_was() -> None:
    """Whoever compares finds the same checkpoint."""
    old = {key: value for key, value in at(3).to_json().items() if key not in ("link", "incarnations")}
    old["version"] = 1
    assert read_checkpoint(old, "sales", "endpoint").to_json() == old


OTHER = history(5, run=" again", since=1)
"""Epoch 0 is the same; the endpoint was restored to it, and the others came again."""


def test_the_endpoint_is_of_another_history() -> None:
    ours = history(5)
    links = {epoch: one.link for epoch, one in ours.items()}
    for epoch in (1, 2, 3, 4):
        with pytest.raises(
            ConfigError, match=f"the endpoint stands at epoch {epoch} of another history"
        ) as told:
            plan_resume("sales", "ours", ours[3], [OTHER[epoch]], NOTHING, links.get)
        assert OTHER[epoch].link in told.value.message
        if epoch <= 3:
            assert ours[epoch].link in told.value.message
    for epoch in (0, 1, 2, 3, 4):
        plan_resume("sales", "ours", ours[3], [ours[epoch]], NOTHING, links.get)


def test_a_sink_is_of_another_history() -> None:
    ours = history(5)
    links = {epoch: one.link for epoch, one in ours.items()}
    for epoch in (1, 2, 3):
        with pytest.raises(ConfigError, match=f"sink lake stands at epoch {epoch} of another history"):
            reconcile_sinks("sales", "ours", ours[3], None, {"lake": OTHER[epoch]}, link_of=links.get)
        reconcile_sinks("sales", "ours", ours[3], None, {"lake": ours[epoch]}, link_of=links.get)


def test_what_an_older_version_wrote_has_no_history_to_compare() -> None:
    old = replace(at(3), version=1)
    plan_resume("sales", "ours", old, [old], NOTHING, lambda _: "")
    plan_resume("sales", "ours", old, [at(4).linked_to("")], NOTHING, lambda _: "")
    reconcile_sinks("sales", "ours", old, None, {"lake": replace(at(2), version=1)}, link_of=lambda _: "")


def test_the_same_name_and_another_thing() -> None:
    checkpoint = replace(at(3), incarnations=("table 1",))
    check_incarnations(checkpoint, SOURCES, ("table 1",), "endpoint")
    check_incarnations(at(3), SOURCES, ("table 2",), "endpoint")  # of before they were kept
    check_incarnations(checkpoint, SOURCES, ("",), "endpoint")
    with pytest.raises(
        ConfigError, match=r"endpoint stands in collection headrace\.orders, which was table 1 and"
    ):
        check_incarnations(checkpoint, SOURCES, ("table 2",), "endpoint")
