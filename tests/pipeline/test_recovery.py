"""Where to go on: the endpoint outranks the log, and the log outranks Spark's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import CheckpointConflict, ConfigError
from headrace.pipeline.recovery import GoOn, check_content, go_on, in_sinks
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint, check_sources, marked, read_checkpoint
from headrace.pipeline.spark_checkpoint import CheckpointFolder, read_folder, write_folder

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
) -> GoOn:
    return go_on("sales", lineage, at(logged), endpoint, found)


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
    check_content("sales", None, "two")
    check_content("sales", ahead, "one")
    check_content("sales", at(4), "two")  # a checkpoint of before there were digests
    with pytest.raises(ConfigError, match="some shards have committed epoch 4 by other rules"):
        check_content("sales", ahead, "two")


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
    assert read_checkpoint(marked(at(4).to_json(), "mine"), "sales", "endpoint") == at(4)
    assert read_checkpoint(marked({}, "mine"), "sales", "endpoint") == at(-1)
    assert read_checkpoint({}, "sales", "endpoint") == at(-1)
    assert at(-1).to_json() == {}
    with pytest.raises(ConfigError, match="that of materialization 'sales' and not of 'stock'"):
        read_checkpoint(at(4).to_json(), "stock", "endpoint")
    with pytest.raises(ConfigError, match="none of a pipeline's"):
        read_checkpoint({"offset": 3}, "sales", "endpoint")
    with pytest.raises(ConfigError, match="another version"):
        read_checkpoint({**at(4).to_json(), "version": 2}, "sales", "endpoint")


def test_other_sources_are_refused() -> None:
    check_sources(at(4), SOURCES, "endpoint")
    check_sources(at(-1), ("kafka topic orders",), "endpoint")
    with pytest.raises(ConfigError, match=r"endpoint stands in collection headrace\.orders and the file now"):
        check_sources(at(4), ("kafka topic orders",), "endpoint")


def test_folders_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_folder(path) == NOTHING
    write_folder(path, "ours", 4, {3: "three", 4: "four", 5: "five"})
    (path / "offsets" / ".4.crc").write_text("of Spark's")
    found = read_folder(path)
    assert found == CheckpointFolder("ours", {3: "three", 4: "four", 5: "five"}, frozenset({4}))
    assert found.follows("ours", 4, {3: "three", 4: "four", 5: "five"})
    write_folder(path, "ours", -1, {})
    assert read_folder(path) == CheckpointFolder("ours")
    (path / "metadata").write_text("{")
    with pytest.raises(ConfigError, match="'metadata' is damaged"):
        read_folder(path)
    (path / "metadata").unlink()
    (path / "offsets" / "0").write_text("zero")
    with pytest.raises(ConfigError, match="has lost its file 'metadata'"):
        read_folder(path)


def test_the_log_outranks_sinks_that_stand_where_it_does_or_before() -> None:
    """One that stands before had no rows since."""
    assert in_sinks("sales", "ours", at(3), None, {"lake": at(3), "files": at(1)}) is None
    endpoint = [at(3), at(3)]
    assert in_sinks("sales", "ours", at(3), endpoint, {"lake": at(3)}) == endpoint


def test_a_sink_that_knows_more_than_the_log_is_refused() -> None:
    with pytest.raises(ConfigError, match="sink lake has epoch 4, and the recovery log ends with 3"):
        in_sinks("sales", "ours", at(3), None, {"files": at(3), "lake": at(4)})
    with pytest.raises(ConfigError, match="sink lake was written by lineage theirs"):
        in_sinks("sales", "ours", at(3), None, {"lake": at(2, "theirs")})


def test_a_lost_log_is_made_anew_from_sinks_that_agree() -> None:
    found = in_sinks("sales", "new", at(-1), None, {"lake": at(3), "files": at(3)})
    start = go_on("sales", "new", at(-1), found, NOTHING)
    assert (start.done.epoch, start.lineage) == (3, "ours")
    assert start.moves_log
    assert in_sinks("sales", "new", at(-1), [at(3), at(3)], {"lake": at(3)}) == [at(3), at(3)]
    assert in_sinks("sales", "new", at(-1), None, {}) is None


@pytest.mark.parametrize("endpoint", [None, [at(3)], [at(-1)]])
def test_with_a_lost_log_sinks_that_do_not_agree_are_refused(
    endpoint: list[RuntimeCheckpoint] | None,
) -> None:
    with pytest.raises(ConfigError, match="is lost, and its sinks do not stand at one epoch"):
        in_sinks("sales", "new", at(-1), endpoint, {"files": at(2), "lake": at(3)})


def test_with_a_lost_log_a_sink_that_has_nothing_is_refused_beside_one_that_has_something() -> None:
    """It may have been about to commit its first rows."""
    with pytest.raises(ConfigError, match=r"do not stand at one epoch \(files at none, lake at 5\): restore"):
        in_sinks("sales", "new", at(-1), None, {"lake": at(5), "files": None})
    with pytest.raises(ConfigError, match=r"\(lake at none, the endpoint at 0\)"):
        in_sinks("sales", "new", at(-1), [at(0)], {"lake": None})
    assert in_sinks("sales", "new", at(-1), None, {"lake": None, "files": None}) is None
    assert in_sinks("sales", "new", at(-1), [at(-1)], {"lake": None}) == [at(-1)]
    assert in_sinks("sales", "ours", at(5), None, {"lake": at(5), "files": None}) is None


def test_with_a_lost_log_dead_letters_of_a_later_epoch_are_refused() -> None:
    """They are committed first, and few epochs have any."""
    with pytest.raises(ConfigError, match=r"\(lake at 4, dead letters at 5\)"):
        in_sinks("sales", "new", at(-1), None, {"lake": at(4)}, dead=at(5))
    with pytest.raises(ConfigError, match=r"\(lake at none, dead letters at 0\)"):
        in_sinks("sales", "new", at(-1), None, {"lake": None}, dead=at(0))
    assert in_sinks("sales", "new", at(-1), None, {"lake": at(4)}, dead=at(2)) == [at(4)]


def test_sinks_that_went_back_do_not_follow_an_endpoint_that_comes_forward_again() -> None:
    """The right dump was restored after the wrong one had been gone by."""
    with pytest.raises(
        ConfigError, match=r"stands at epoch 5, .* ends with epoch 2, so that lake would lack"
    ):
        in_sinks("sales", "ours", at(2), [at(5)], {"lake": at(1)})
    with pytest.raises(ConfigError, match="so that dead letters would lack what is between"):
        in_sinks("sales", "ours", at(2), [at(5)], {}, went_back=True)
    assert in_sinks("sales", "ours", at(2), [at(5)], {}) == [at(5)]
    assert in_sinks("sales", "ours", at(2), [at(3)], {"lake": at(2)}) == [at(3)], "it is run again"


def test_a_log_in_which_nothing_was_decided_yet_is_not_lost() -> None:
    """It crashed when some shards, or all, had committed the first epoch of all."""
    for endpoint in ([at(0), at(-1)], [at(-1), at(0)], [at(0), at(0)]):
        assert in_sinks("sales", "ours", at(-1), endpoint, {"lake": None, "files": None}) == endpoint
    with pytest.raises(ConfigError, match="is lost"):
        in_sinks("sales", "new", at(-1), [at(0), at(-1)], {"lake": None})
