"""The committer in a process of its own: killed, frozen, raced, and left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ConfigError, SchemaError, UnexpectedFailure
from headrace.ingest.iceberg import CatalogSettings, CommitterDied, CommitterProcess
from headrace.ingest.iceberg.errors import CommitterKilled, CommitterSilent
from headrace.wal.records import BadRecord
from headrace.wal.segments import CorruptLog
from headrace.wal.state import Committed
from tests.ingest.iceberg.scenario import Scenario
from tests.ingest.iceberg.test_commit import STEPS, decisive
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes


def faulty(scenario: Scenario, fault: str, step: str = "-") -> CommitterProcess:
    command = [sys.executable, "-m", "tests.ingest.iceberg.faulty_committer", fault, step]
    return CommitterProcess(scenario.settings, command)


def test_the_committer_gives_way_to_the_server(scenario: Scenario) -> None:
    with CommitterProcess(scenario.settings) as committer:
        committer.start()
        assert committer.pid is not None
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, committer.pid) == min(ours + 10, 19)


@pytest.mark.parametrize("step", decisive([*STEPS, "answering"], "committing"))
def test_a_committer_that_is_killed_at_a_step_is_replaced(scenario: Scenario, step: str) -> None:
    scenario.write_segment()
    with faulty(scenario, "kill", step) as dying, pytest.raises(CommitterDied, match="ended with -9"):
        dying.commit(scenario.job())
    scenario.write_segment()

    assert scenario.commit().lsn == scenario.last_lsn

    scenario.assert_exactly_once()


@pytest.mark.parametrize("step", decisive(["written", "committing", "committed"], "committing"))
def test_a_committer_that_slept_while_another_committed_adds_nothing(scenario: Scenario, step: str) -> None:
    scenario.write_segment()
    with faulty(scenario, "stop", step) as zombie:
        outcomes: list[Any] = []
        old_job = scenario.job()
        caller = threading.Thread(target=lambda: outcomes.append(zombie.commit(old_job)))
        caller.start()
        wait_until(lambda: zombie.pid is not None, "the process")
        pid = zombie.pid
        assert pid is not None
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        scenario.write_segment()
        scenario.commit()

        os.kill(pid, signal.SIGCONT)
        caller.join()

    (outcome,) = outcomes
    assert outcome["orders"].lsn >= old_job.through
    scenario.assert_exactly_once()
    scenario.assert_no_litter()


@pytest.mark.full
def test_processes_race(scenario: Scenario) -> None:
    for _ in range(3):
        scenario.write_segment()
    with CommitterProcess(scenario.settings) as one, CommitterProcess(scenario.settings) as other:
        one.start()
        other.start()

        def run(committer: CommitterProcess) -> None:
            for through in range(1, scenario.last_lsn + 1):
                committer.commit(scenario.job(through))

        threads = [threading.Thread(target=run, args=(each,)) for each in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.commit(scenario.job())["orders"] == other.watermarks(["orders"])["orders"]

    scenario.assert_exactly_once()


def test_a_committer_that_does_not_answer_is_replaced(scenario: Scenario) -> None:
    scenario.write_segment()
    with faulty(scenario, "stop", "answering") as committer:
        committer.start()
        frozen = committer.pid
        with pytest.raises(CommitterSilent, match="did not answer in time"):
            committer.watermarks(["orders"], timeout=0.5)
        assert committer.pid is None
        assert frozen is not None
        assert not Path(f"/proc/{frozen}").exists()
        committer._command = CommitterProcess(scenario.settings)._command

        assert committer.commit(scenario.job())["orders"] == scenario.commit()

    scenario.assert_exactly_once()


def test_a_committer_can_be_killed_while_it_is_asked(scenario: Scenario) -> None:
    with faulty(scenario, "stop", "answering") as committer:
        committer.start()
        killer = threading.Thread(target=kill_when_asked, args=[committer])
        killer.start()
        with pytest.raises(CommitterKilled, match="ended with -9"):
            committer.watermarks(["orders"])
        killer.join(DEADLINE_SECONDS)


@pytest.mark.parametrize(
    ("sent", "kind"),
    [(signal.SIGTERM, CommitterKilled), (signal.SIGSEGV, CommitterDied), (signal.SIGABRT, CommitterDied)],
)
def test_how_a_committer_ended_tells_who_ended_it(
    scenario: Scenario, sent: signal.Signals, kind: type[CommitterDied]
) -> None:
    with CommitterProcess(
        scenario.settings, [sys.executable, "-c", f"import os; os.kill(os.getpid(), {sent:d})"]
    ) as committer:
        with pytest.raises(CommitterDied, match=f"ended with -{sent:d}") as died:
            committer.watermarks(["orders"])
        assert type(died.value) is kind


def kill_when_asked(committer: CommitterProcess) -> None:
    """Waits until the committer has stopped while a caller waits for its answer, and kills it."""
    wait_until(lambda: committer.pid is not None and is_stopped(committer.pid), "a request")
    committer.kill()


def test_what_libraries_print_is_no_answer(scenario: Scenario, caplog: pytest.LogCaptureFixture) -> None:
    scenario.write_segment()
    with faulty(scenario, "chatter") as committer:
        assert committer.commit(scenario.job())["orders"] == scenario.commit()
    assert "a library prints on stdout" in caplog.text


def test_errors_come_back_as_what_they_are(scenario: Scenario) -> None:
    scenario.write_segment()
    with CommitterProcess(scenario.settings) as committer:
        outcomes = committer.watermarks(["orders", "no/table"])
        assert outcomes["orders"] == Committed(0)
        assert isinstance(outcomes["no/table"], ConfigError)

        large = pa.schema((f"column {number} " + "x" * 100, pa.int32()) for number in range(2000))
        outcome = committer.commit(scenario.job(schema=large))["orders"]
        assert isinstance(outcome, SchemaError)
        assert "column 'id' is not in the collection's schema" in str(outcome)

        path = scenario.segments[0].path
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        with pytest.raises(CorruptLog, match="bytes and had"):
            committer.commit(scenario.job())
        path.write_bytes(whole[:-9] + b"!" + whole[-8:])
        with pytest.raises(BadRecord, match="checksum"):
            committer.commit(scenario.job())
        path.write_bytes(b"x" * len(whole))
        with pytest.raises(BadRecord, match="header is damaged"):
            committer.commit(scenario.job())
        path.unlink()
        with pytest.raises(UnexpectedFailure, match="FileNotFound"):
            committer.commit(scenario.job())


def test_a_catalog_that_cannot_be_reached_is_transient(tmp_path: Path) -> None:
    nowhere = CatalogSettings(properties={"type": "sql", "uri": f"sqlite:///{tmp_path}/no/catalog.db"})
    with CommitterProcess(nowhere) as committer:
        outcome = committer.watermarks(["orders"])["orders"]
    assert type(outcome).__name__ == "CatalogUnavailable"
    assert "unable to open database file" in str(outcome)


PARENT = """
import signal, sys, threading, time
from headrace.ingest.iceberg import CatalogSettings, CommitterProcess
signal.signal(signal.SIGINT, signal.SIG_DFL)  # whatever started the tests may ignore it
def serve():
    committer = CommitterProcess(CatalogSettings.model_validate_json(sys.argv[1]))
    committer.watermarks(["orders"])
    print(committer.pid, flush=True)
    time.sleep(600)
if sys.argv[2] == "main":
    serve()
threading.Thread(target=serve).start()
"""


@contextmanager
def parent_and_child(settings: CatalogSettings, thread: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    command = [sys.executable, "-c", PARENT, settings.model_dump_json(), thread]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        try:
            yield parent, int(parent.stdout.readline())
        finally:
            parent.kill()


def test_the_committer_ends_with_the_server_and_not_with_ctrl_c(scenario: Scenario) -> None:
    with parent_and_child(scenario.settings, "other") as (parent, child):
        assert ignores(child, signal.SIGINT)
        parent.kill()
        wait_until(lambda: not is_running(child))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a frozen process of its parent's end")
def test_even_a_frozen_committer_ends_with_the_server(scenario: Scenario) -> None:
    with parent_and_child(scenario.settings, "main") as (parent, child):
        os.kill(child, signal.SIGSTOP)
        parent.kill()
        wait_until(lambda: not is_running(child))


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ignores(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_the_server_does_not_load_pyiceberg() -> None:
    code = "import sys, headrace.ingest.iceberg; sys.exit('pyiceberg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
