"""A soak resumes where it ended, draws a seed for each round, and prints how to reproduce a failure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from devtools import soak
from devtools.soak import Done, Part, State, main, markdown, parts
from tests.crash.ingest.test_random_faults import KILLS, RUNS_IN_FOLDERS, RUNS_ON_SERVERS

PRINTED = "import sys; print('seed', sys.argv[1]);"


def using(monkeypatch: pytest.MonkeyPatch, *scripts: str) -> None:
    """Makes a round consist of these scripts, which are given its seed."""
    made = [
        Part(f"part {number}", [sys.executable, "-c", PRINTED + script, "{seed}"])
        for number, script in enumerate(scripts, 1)
    ]
    monkeypatch.setattr(soak, "parts", lambda _examples, _minutes: made)


def run(state: Path, *options: str) -> tuple[int, list[str]]:
    """Returns the exit code and the lines about rounds."""
    result = CliRunner().invoke(main, ["--state", str(state), *options])
    return result.exit_code, [line for line in result.output.splitlines() if line.startswith("round")]


@pytest.mark.processes
def test_a_later_call_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    using(monkeypatch, "pass")
    state = tmp_path / "state.json"
    code, (first, second) = run(state, "--rounds", "2")
    assert code == 0
    assert first.startswith("round 1")
    assert second.startswith("round 2")
    assert first.split()[3] != second.split()[3]
    assert run(state, "--rounds", "2") == (0, [])
    code, (third,) = run(state, "--rounds", "3")
    assert third.startswith("round 3")
    code, (one_more,) = run(state)
    assert one_more.startswith("round 4")
    code, (anew,) = run(state, "--anew")
    assert anew.startswith("round 1")


@pytest.mark.processes
def test_it_stops_at_a_failure_and_goes_on_with_the_rest_of_the_round(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    using(monkeypatch, "print('FAILED tests/a.py::test_it - oh'); sys.exit(1)", "pass")
    state = tmp_path / "state.json"
    code, (failed,) = run(state, "--rounds", "2")
    assert code == 1
    assert "part 1" in failed
    (done,) = State.read(state).done
    assert done.failures
    assert done.failures[0].endswith(f"{done.seed} tests/a.py::test_it")
    code, lines = run(state, "--rounds", "2", "--keep-going")
    assert code == 1
    assert [line.split("part ")[1][0] for line in lines] == ["2", "1", "2"]
    assert lines[0].split()[3] == str(done.seed)


@pytest.mark.processes
def test_minutes_count_those_of_earlier_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    using(monkeypatch, "pass")
    state = tmp_path / "state.json"
    State(1, [Done(1, "part 1", 5, 60.0, "abc")]).write(state)
    assert run(state, "--minutes", "1") == (0, [])


def test_the_command_that_shows_a_failure_again() -> None:
    properties, killed, *_, certified = parts(10, 2.5)
    assert properties.again(7, ["tests/a.py::test_it[a b]"]).endswith(
        "-m pytest -p no:cacheprovider -p devtools.soak_profile --hypothesis-profile=soak"
        " --hypothesis-seed=7 -m hypothesis 'tests/a.py::test_it[a b]'"
    )
    assert killed.again(7).startswith("HEADRACE_SOAK_SEED=7 ")
    assert certified.again(7).endswith("-m devtools.certify --soak=2.5 --seed=7")


def test_a_round_has_a_thousand_kills_by_random_faults_in_parts_that_resume() -> None:
    tenths = [one.whole for one in parts(10, 2.5) if one.name.startswith("random faults")]
    chosen = [test for tenth in tenths for test in tenth]
    known = {
        *(f"test_many_kills_in_folders[{number}]" for number in range(RUNS_IN_FOLDERS)),
        *(f"test_many_kills_on_real_servers[{number}]" for number in range(RUNS_ON_SERVERS)),
    }
    assert {test.partition("::")[2] for test in chosen} == known
    assert KILLS * len(chosen) == 1000


def test_a_state_that_is_none_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text("[]")
    result = CliRunner().invoke(main, ["--state", str(state)])
    assert result.exit_code == 1
    assert "--anew starts over" in result.output


def test_the_record_is_markdown() -> None:
    known = State(3, [Done(1, "x", 5, 90.0, "abc"), Done(2, "x", 6, 30.0, "abc", ["again"])])
    assert markdown(known).splitlines() == [
        "Last soak: revision `abc`, seed 3, 2 minutes.",
        "",
        "| part | rounds | minutes | failed |",
        "|---|---|---|---|",
        "| x | 2 | 2.0 | 1 |",
        "",
        "- round 2: `again`",
    ]


def test_help_has_an_example() -> None:
    assert "python -m devtools.soak --rounds 10" in CliRunner().invoke(main, ["--help"]).output
