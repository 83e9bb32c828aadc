"""Pipelines of each format version resume where they were killed: decided epochs are committed."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from devtools.kafka_broker import KafkaBroker
from devtools.postgres_server import PostgresServer
from devtools.redis_server import RedisServer
from headrace.connectors.registry import connector_names
from headrace.pipeline.state_paths import open_recovery_log
from headrace.pipeline.verification import verify
from headrace.sinks.registry import sink_formats
from headrace.testing.runtime import View, combine
from tests.formats.archives import VERSIONS
from tests.formats.make_pipelines import AHEAD
from tests.formats.pipelines import Documents, Pipelines, Reports, configuration_of, opened
from tests.pipeline.scenario import COLLECTION, in_order

# The fixture runs all pipelines, and may have to wait for another test run that uses the same path.
pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(900)]
MORE = 40
SERVED = ("sqlite", "postgres")
"""Connectors whose endpoints commit before the decision."""
UNMARKED = "v1"
"""The version whose checkpoints have neither links nor the identities of sources and targets."""
FEW = frozenset({"sqlite", AHEAD})
"""The materializations that `make test` looks at, and of the oldest version sinks as well."""
ALL = None
CHOSEN = [
    pytest.param((VERSIONS[0], FEW | {"views"}), id=f"{VERSIONS[0]}-few"),
    *(pytest.param((version, FEW), id=f"{version}-few") for version in VERSIONS[1:]),
    *(pytest.param((version, ALL), id=version, marks=pytest.mark.full) for version in VERSIONS),
]


@dataclass(frozen=True)
class Run:
    """A run of all pipelines of a version by the current code, with one more batch to read."""

    version: str
    pipelines: Pipelines
    before: dict[str, Documents]
    """What readers saw before the run, by materialization and sink."""
    batches: list[Documents]
    """The rows that each epoch read."""
    reports: Reports
    warnings: list[str]
    """Of the recovery."""


@pytest.fixture(scope="module", params=CHOSEN)
def run(
    request: pytest.FixtureRequest,
    spark: object,
    postgres_server: PostgresServer,
    redis_server: RedisServer,
    kafka_broker: KafkaBroker,
) -> Iterator[Run]:
    version, only = request.param
    with opened(version, only, postgres_server, redis_server, kafka_broker) as pipelines:
        before = {name: read() for name, read in pipelines.reader.items()}
        batches = [*pipelines.description["written"], pipelines.write(MORE)]
        with warnings_of("headrace.pipeline.recovery") as warnings:
            reports = pipelines.run()
        yield Run(version, pipelines, before, batches, reports, warnings)


@contextmanager
def warnings_of(logger: str) -> Iterator[list[str]]:
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(logger).addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger(logger).removeHandler(handler)


def test_nobody_fails(run: Run) -> None:
    assert {name: failures for name, failures in run.reports.failures.items() if failures} == {}


def test_readers_had_the_decided_epoch_of_those_who_commit_first_alone(run: Run) -> None:
    """Checks the fixture, which would prove nothing otherwise."""
    configured = run.pipelines.config["materializations"]
    for name, documents in run.before.items():
        connector = configured[name.partition("/")[0]].get("connector")
        epochs = 2 if connector in (*SERVED, "redis") else 1
        assert combine(COLLECTION, documents) == _expected(run.batches[:epochs]), name


def test_one_line_says_that_more_is_known_from_now_on_if_it_was_not(run: Run) -> None:
    for name in run.pipelines.names:
        said = re.compile(
            rf"materialization {name!r}: epoch \d+ was written by an earlier version; from now on"
        )
        assert any(map(said.match, run.warnings)) == (run.version == UNMARKED), name


def test_what_was_decided_is_not_run_again(run: Run) -> None:
    ahead = run.pipelines.description["ahead"]
    found = {name: run.reports.epochs[name] for name in run.pipelines.names}
    assert found == {name: [1, 2] if name in ahead else [2] for name in run.pipelines.names}


def test_every_target_is_exact(run: Run) -> None:
    expected = _expected(run.batches)
    for name, read in run.pipelines.reader.items():
        documents = read()
        assert combine(COLLECTION, documents) == expected, name
        if name.endswith(("_view", "/connector")) and not name.startswith("files/"):
            assert len(documents) == len(expected), name


def test_every_bad_row_is_a_dead_letter_once(run: Run) -> None:
    dead = [order for batch in run.batches for order in batch if order["cents"] < 0]
    assert dead
    for name in run.pipelines.names:
        assert in_order(run.pipelines.dead_letters(name)) == in_order(dead), name


def test_verify_finds_nothing_wrong_and_nothing_is_left_to_commit(run: Run) -> None:
    settings = run.pipelines.settings
    for one in settings.materializations:
        verdicts = list(verify(settings, one))
        assert [problem for verdict in verdicts for problem in verdict.problems] == [], one.name
        logged = open_recovery_log(settings, one.name).read()
        assert logged.is_settled, one.name
        assert logged.decision is not None
        assert logged.decision.epoch == len(run.batches) - 1, one.name


def test_each_sink_and_connector_is_in_a_fixture() -> None:
    """Excepts the webhook: it receives an epoch before the decision, and nothing of it is kept."""
    configured = [
        one for version in VERSIONS for one in configuration_of(version)["materializations"].values()
    ]
    sinks = {sink["format"] for one in configured for sink in one.get("sinks", {}).values()}
    connectors = {one["connector"] for one in configured if "connector" in one}
    assert sinks >= set(sink_formats())
    assert connectors >= set(connector_names()) - {"webhook"}


def _expected(batches: list[Documents]) -> View:
    return combine(COLLECTION, [order for batch in batches for order in batch if order["cents"] >= 0])
