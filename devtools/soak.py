"""Runs random kills, fuzzing and schedules in rounds, each with its own seed.

make soak N=10
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from devtools.pytest_reports import SEED_VARIABLE
from devtools.running import REPOSITORY, failed_tests, interrupted_by_signals, run_logged
from devtools.soak_profile import EXAMPLES as EXAMPLES_VARIABLE

EXAMPLES = """\b
Examples:
  python -m devtools.soak --rounds 10
  python -m devtools.soak --minutes 60 --keep-going
  python -m devtools.soak --rounds 3 --only properties --examples 5000 --anew
  python -m devtools.soak --record >> docs/development.md"""

_STATE = ".soak.json"
_FAULTS = "tests/crash/ingest/test_random_faults.py"
_INTERRUPTED = 130
_NONE_SELECTED = 5  # pytest's exit code


@dataclass(frozen=True)
class Part:
    """One command of a round. {seed} is replaced by the seed of the round."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    whole: Sequence[str] = ()
    """Arguments that select all tests; failed tests replace them when they are run again."""

    def arguments(self, seed: int, tests: Sequence[str] = ()) -> list[str]:
        chosen = [*self.command, *(tests or self.whole)]
        return [one.format(seed=seed) if "{seed}" in one else one for one in chosen]

    def again(self, seed: int, tests: Sequence[str] = ()) -> str:
        """Returns the command that reproduces a failure."""
        variables = [f"{name}={value.format(seed=seed)}" for name, value in self.environment.items()]
        program, *rest = self.arguments(seed, tests)
        shown = Path(program)
        if shown.is_relative_to(REPOSITORY):
            shown = shown.relative_to(REPOSITORY)
        return " ".join([*variables, shlex.join([str(shown), *rest])])


def parts(examples: int, certify_minutes: float) -> list[Part]:
    pytest = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
    profile = ("-p", "devtools.soak_profile", "--hypothesis-profile=soak", "--hypothesis-seed={seed}")
    return [
        Part(
            "properties",
            [*pytest, *profile, "-m", "hypothesis"],
            {EXAMPLES_VARIABLE: str(examples)},
            ["tests"],
        ),
        Part(
            "kills and fuzzing",
            [*pytest, "-m", "soak", f"--ignore={_FAULTS}"],
            {SEED_VARIABLE: "{seed}"},
            ["tests"],
        ),
        *(
            Part(f"random faults {number}", [*pytest, "-m", "soak"], {SEED_VARIABLE: "{seed}"}, tests)
            for number, tests in enumerate(random_faults(), 1)
        ),
        Part(
            "certification",
            [sys.executable, "-m", "devtools.certify", f"--soak={certify_minutes:g}", "--seed={seed}"],
        ),
    ]


def random_faults() -> list[list[str]]:
    """Returns the runs of a thousand kills in tenths, each of which is a part: they take an hour and more."""
    return [
        [
            *(f"{_FAULTS}::test_many_kills_in_folders[{run}]" for run in range(4 * tenth, 4 * tenth + 4)),
            f"{_FAULTS}::test_many_kills_on_real_servers[{tenth}]",
        ]
        for tenth in range(10)
    ]


@dataclass(frozen=True)
class Done:
    """A completed part of a round."""

    round: int
    part: str
    seed: int
    seconds: float
    revision: str
    failures: Sequence[str] = ()
    """Commands that reproduce the failures."""


@dataclass
class State:
    """Progress of a soak, kept in a file so that a later call can resume it."""

    seed: int
    """The seeds of all rounds are derived from this one."""
    done: list[Done] = field(default_factory=list)

    @staticmethod
    def read(file: Path) -> State:
        try:
            stored = json.loads(file.read_text())
            return State(stored["seed"], [Done(**one) for one in stored["done"]])
        except FileNotFoundError:
            return State(random.SystemRandom().randrange(1 << 31))
        except (ValueError, KeyError, TypeError):
            raise click.ClickException(f"{file} is not the state of a soak: --anew starts over") from None

    def write(self, file: Path) -> None:
        aside = file.with_name(file.name + ".new")
        aside.write_text(json.dumps(asdict(self), indent=1) + "\n")
        aside.replace(file)

    def seed_of(self, number: int) -> int:
        return random.Random(f"{self.seed}/{number}").randrange(1 << 31)  # noqa: S311 - must be reproducible

    def missing(self, number: int, names: Sequence[str]) -> list[str]:
        """Returns the parts of a round that are not completed; they run again with the same seed."""
        ended = {one.part for one in self.done if one.round == number}
        return [name for name in names if name not in ended]

    def next_round(self, names: Sequence[str]) -> int:
        number = max((one.round for one in self.done), default=0)
        return number if number and self.missing(number, names) else number + 1

    @property
    def minutes(self) -> float:
        return sum(one.seconds for one in self.done) / 60


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rounds", type=click.IntRange(min=1), help="So many rounds, those of earlier calls included.")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="So many, those of earlier calls included."
)
@click.option(
    "--only", multiple=True, type=click.Choice([one.name for one in parts(1, 1)]), help="Only this part."
)
@click.option(
    "--examples", default=1000, show_default=True, help="For each property that sets no number itself."
)
@click.option("--certify-minutes", default=5.0, show_default=True, help="Of faults by chance in a round.")
@click.option("--keep-going", is_flag=True, help="Go on after a failure.")
@click.option("--anew", is_flag=True, help="Forget earlier calls.")
@click.option("--record", is_flag=True, help="Print what was done as Markdown, and end.")
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=REPOSITORY / _STATE,
    help=f"What was done.  [default: {_STATE}]",
)
def main(
    rounds: int | None,
    minutes: float | None,
    only: tuple[str, ...],
    examples: int,
    certify_minutes: float,
    keep_going: bool,
    anew: bool,
    record: bool,
    state: Path,
) -> None:
    """Searches for failures that no list of cases covers, and resumes where an earlier call ended.

    Each round draws a seed. With it, the round tries properties with new examples, kills and fuzzes the
    ingest server (all tests marked `soak`), and certifies pipelines with random faults. Without --rounds or
    --minutes it runs one more round. Exits with 1 at the first failure and prints the command that reproduces
    it.
    """
    if anew:
        state.unlink(missing_ok=True)
    known = State.read(state)
    if record:
        click.echo(markdown(known))
        return
    chosen = [one for one in parts(examples, certify_minutes) if not only or one.name in only]
    if rounds is None and minutes is None:
        rounds = known.next_round([one.name for one in chosen])
    logs = Path(tempfile.mkdtemp(prefix="headrace-soak-"))
    click.echo(f"seed {known.seed}, output in {logs}")
    try:
        with interrupted_by_signals():
            is_good = soak(known, state, chosen, logs, rounds, minutes, keep_going)
    except KeyboardInterrupt:
        click.echo("interrupted; run the same command to continue")
        raise SystemExit(_INTERRUPTED) from None
    click.echo(markdown(known))
    if not is_good:
        raise SystemExit(1)
    shutil.rmtree(logs)


def soak(
    known: State,
    file: Path,
    chosen: Sequence[Part],
    logs: Path,
    rounds: int | None,
    minutes: float | None,
    keep_going: bool,
) -> bool:
    """Returns True if nothing failed."""
    names, is_good = [one.name for one in chosen], True
    while True:
        number = known.next_round(names)
        if (rounds and number > rounds) or (minutes and known.minutes >= minutes):
            return is_good
        missing = known.missing(number, names)
        for part in chosen:
            if part.name not in missing:
                continue
            done = _run(part, number, known.seed_of(number), logs)
            known.done.append(done)
            known.write(file)
            if done.failures and not keep_going:
                return False
            is_good = is_good and not done.failures


def _run(part: Part, number: int, seed: int, logs: Path) -> Done:
    log = logs / f"round-{number}-{part.name.replace(' ', '-')}.log"
    began = time.monotonic()
    environment = {name: value.format(seed=seed) for name, value in part.environment.items()}
    code = run_logged(part.arguments(seed), log, environment)
    seconds = time.monotonic() - began
    failures: list[str] = []
    if code not in (0, _NONE_SELECTED if part.whole else 0):
        tests = failed_tests(log.read_text(errors="replace"))
        failures = [part.again(seed, [test]) for test in tests] or [part.again(seed)]
    said = f"{len(failures)} failed, output in {log}" if failures else "ok"
    click.echo(f"round {number}  seed {seed}  {part.name:<17}  {seconds:7.1f} s  {said}")
    for failure in failures:
        click.echo(f"  {failure}")
    return Done(number, part.name, seed, round(seconds, 1), revision(), failures)


def revision() -> str:
    """Returns the revision under test, marked as dirty if it has uncommitted changes."""
    git = shutil.which("git")
    if git is None or not (REPOSITORY / ".git").exists():
        return "unknown"
    command = [git, "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    found = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def markdown(known: State) -> str:
    """Summarizes the soak for docs/development.md: revision, seed, minutes, and the failures of each part."""
    if not known.done:
        return "Nothing was soaked yet."
    revisions = ", ".join(f"`{one}`" for one in dict.fromkeys(one.revision for one in known.done))
    lines = [
        "| part | rounds | minutes | failed |",
        "|---|---|---|---|",
    ]
    for name in dict.fromkeys(one.part for one in known.done):
        some = [one for one in known.done if one.part == name]
        spent, failed = sum(one.seconds for one in some) / 60, sum(bool(one.failures) for one in some)
        lines.append(f"| {name} | {len(some)} | {spent:.1f} | {failed} |")
    failures = [f"- round {one.round}: `{failure}`" for one in known.done for failure in one.failures]
    head = f"Last soak: revision {revisions}, seed {known.seed}, {known.minutes:.0f} minutes."
    return "\n".join([head, "", *lines, *([""] if failures else []), *failures])


if __name__ == "__main__":
    main(prog_name="python -m devtools.soak")
