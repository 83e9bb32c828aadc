"""The connector's process, and the runtime's, is killed as by kill -9 at each step."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, Transient
from headrace.testing import FileLog, MemoryLog
from tests.connectors.files.driving import CLIENT
from tests.connectors.files.scenario import applied, assert_exact, assert_only_committed, materialize
from tests.connectors.files_endpoint import FilesEndpointUnderTest
from tests.crash.forking import ForkedConnector, ForkedProcess
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.processes

# Two files a transaction: the third transaction's are the 5th and 6th.
STAGED, PUBLISHING, PUBLISHED = ("after close", 6), ("before publish", 5), ("after publish", 5)
DECISIVE = [
    ("sent Opened", 1),
    STAGED,
    ("sending StartedCommit", 3),
    ("sent StartedCommit", 3),
    PUBLISHING,
    PUBLISHED,
]
OTHERS = [
    ("after write", 5),
    ("before close", 5),
    ("after close", 5),
    ("before publish", 6),
    ("after create", 6),
    ("after delete", 6),
    # A transaction deletes two staged objects, and from the second one on two markers.
    ("after delete", 7),
    ("after delete", 8),
    ("sending Acknowledged", 3),
    ("sent Acknowledged", 3),
    ("received Store", 17),
    ("sending StartedCommit", 1),
]


def in_full(*rows: tuple[str, int]) -> list[object]:
    """Leaves the rows to the full tier."""
    return [pytest.param(*row, marks=pytest.mark.full) for row in rows]


def faulty_connector(fault: str, step: str, occurrence: int) -> ForkedConnector:
    arguments = ["--fault", fault, "--step", step, "--occurrence", str(occurrence)]
    return ForkedConnector("files", "tests.connectors.files.faulty_connector", arguments)


def kill_and_go_on(endpoint: FilesEndpointUnderTest, folder: Path, step: str, occurrence: int) -> None:
    log = FileLog(folder / "recovery.json")
    with faulty_connector("kill", step, occurrence) as connector:
        materialization = applied(endpoint.config, connector.client)
        with pytest.raises(Transient):
            materialize(connector.client, materialization, log)
        assert connector.wait() == -9, "the connector must have died of the fault, not of something else"
    assert_only_committed(endpoint, log)
    materialize(CLIENT, materialization, log)
    assert_exact(endpoint)


@pytest.mark.parametrize(("step", "occurrence"), [*DECISIVE, *in_full(*OTHERS)])
def test_a_connector_killed_in_a_folder(
    folder: FilesEndpointUnderTest, tmp_path: Path, step: str, occurrence: int
) -> None:
    kill_and_go_on(folder, tmp_path, step, occurrence)


@pytest.mark.parametrize(("step", "occurrence"), [PUBLISHED, *in_full(STAGED, PUBLISHING)])
def test_a_connector_killed_in_a_bucket(
    s3_endpoint: FilesEndpointUnderTest, tmp_path: Path, step: str, occurrence: int
) -> None:
    kill_and_go_on(s3_endpoint, tmp_path, step, occurrence)


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [
        ("received StartedCommit", 3),
        ("committed to the log", 3),
        *in_full(("sent Acknowledge", 3), ("sent Store", 17), ("sent StartCommit", 3)),
    ],
)
def test_a_runtime_killed(folder: FilesEndpointUnderTest, tmp_path: Path, step: str, occurrence: int) -> None:
    log = tmp_path / "recovery.json"
    with ForkedConnector("files") as connector:
        arguments = [json.dumps(folder.config), str(log), connector.address, step, str(occurrence)]
        with ForkedProcess("tests.connectors.files.faulty_runtime", arguments) as runtime:
            assert runtime.wait() == -9, "the runtime must have died of the fault, not of something else"
        assert_only_committed(folder, FileLog(log))
        # The same connector process goes on, with the broken stream's remains still in it.
        materialization = applied(folder.config, connector.client)
        materialize(connector.client, materialization, FileLog(log))
    assert_exact(folder)


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [
        ("sending StartedCommit", 3),
        PUBLISHING,
        *in_full(("received Store", 17), ("before close", 5)),
    ],
)
def test_a_zombie_that_wakes_up_publishes_nothing_of_its_own(
    folder: FilesEndpointUnderTest, tmp_path: Path, step: str, occurrence: int
) -> None:
    """Its runtime has a log of its own, which stands for one that it can no longer write to."""
    log = FileLog(tmp_path / "recovery.json")
    with faulty_connector("stop", step, occurrence) as zombie:
        materialization = applied(folder.config, zombie.client)
        zombie_log = CutOffLog(log)
        errors: list[BaseException] = []

        def run_zombie() -> None:
            try:
                materialize(zombie.client, materialization, zombie_log)
            except (HeadraceError, LogLost) as error:
                errors.append(error)

        thread = threading.Thread(target=run_zombie)
        thread.start()
        zombie.wait_until_frozen()
        zombie_log.is_cut_off = True
        materialize(CLIENT, materialization, log)
        assert_exact(folder)
        zombie.resume()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
        assert errors, "the zombie must have been stopped, by its log or by the connector"
    assert_exact(folder)


class LogLost(Exception):
    """What a recovery log says to who was replaced."""


class CutOffLog(MemoryLog):
    """A recovery log that from some moment on is another's."""

    def __init__(self, log: FileLog) -> None:
        super().__init__()
        self._log = log
        self.is_cut_off = False

    def commit(self, state: object) -> None:
        if self.is_cut_off:
            raise LogLost
        self._log.commit(state)  # type: ignore[arg-type]
