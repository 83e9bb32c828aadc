"""Reading tables through other processes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from headrace.errors import ConfigError
from headrace.ingest.iceberg import CatalogUnavailable, Scan, ScanFailed, Scanner
from headrace.ingest.iceberg.scan import MOST_BYTES
from headrace.testing.freezing import freeze
from headrace.wal.state import Committed
from tests.ingest.iceberg.scenario import ORDERS, Scenario
from tests.waiting import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def scanner(scenario: Scenario) -> Iterator[Scanner]:
    # However slow the machine is, no reader is taken for one that has stopped.
    with Scanner(scenario.settings, patience=float("inf")) as scanner:
        yield scanner


def rows_of(scan: Scan) -> Counter[Any]:
    with scan:
        table = scan.reader().read_all().select(["_lsn", "_row", "id", "name"])
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_scan_has_the_rows_and_the_watermark_of_one_snapshot(scenario: Scenario, scanner: Scanner) -> None:
    with scanner.scan("orders") as nothing:
        assert nothing.committed == Committed(0)
        assert list(nothing) == []
        assert nothing.schema.names == ["_lsn", "_row"]
    for _ in range(3):
        scenario.write_segment()
        committed = scenario.commit()

        scan = scanner.scan("orders")

        assert scan.committed == committed
        assert scan.schema == pa.schema(
            [
                *ORDERS,
                pa.field("_lsn", pa.int64(), nullable=False),
                pa.field("_row", pa.int32(), nullable=False),
            ]
        )
        assert rows_of(scan) == scenario.written
    some = {row: 1 for row in scenario.written if 4 <= row[0] <= 6}
    assert some
    assert rows_of(scanner.scan("orders", from_lsn=4, to_lsn=6)) == some
    assert rows_of(scanner.scan("orders", from_lsn=scenario.last_lsn + 1)) == {}
    scenario.table().delete("_lsn = 1")
    assert rows_of(scanner.scan("orders", to_lsn=1)) == {}
    # All with one process, which was kept.
    assert len(scanner._idle) == 1


def test_scans_run_at_once_up_to_a_bound(scenario: Scenario, scanner: Scanner) -> None:
    scenario.write_segment()
    scenario.commit()
    one, other = scanner.scan("orders"), scanner.scan("orders")
    with pytest.raises(ScanFailed, match="as many scans as may be are running"):
        scanner.scan("orders", timeout=0.01)
    waiting: list[Any] = []
    third = threading.Thread(target=lambda: waiting.append(rows_of(scanner.scan("orders"))))
    third.start()
    assert rows_of(one) == scenario.written
    third.join()
    assert waiting == [scenario.written]
    assert rows_of(other) == scenario.written


def test_readers_that_take_nothing_make_way_for_others(scenario: Scenario) -> None:
    scenario.write_segment()
    scenario.commit()
    with Scanner(scenario.settings, patience=0.0) as scanner:
        stalled = [scanner.scan("orders"), scanner.scan("orders")]
        assert rows_of(scanner.scan("orders")) == scenario.written
        for scan in stalled:
            with scan, pytest.raises(ScanFailed, match="nothing was read for 0 s, and others waited"):
                list(scan)


def test_who_waits_for_rows_is_not_taken_for_one_who_takes_none(scenario: Scenario) -> None:
    large_scenario(scenario)
    with Scanner(scenario.settings, most=1, patience=0.0) as scanner:
        scan = scanner.scan("orders")
        freeze(scan._child.pid)
        reading = threading.Thread(target=lambda: list(scan))
        reading.start()
        wait_until(lambda: scan._taken_at is None)
        with pytest.raises(ScanFailed, match="as many scans as may be are running"):
            scanner.scan("orders", timeout=0.1)
        psutil.Process(scan._child.pid).resume()
        reading.join()


def large_scenario(scenario: Scenario) -> int:
    """Far more than a pipe holds; bytes."""
    texts = pa.array([f"{number:01000}" for number in range(64_000)])
    batch = pa.record_batch([pa.array(range(64_000), pa.int32()), texts], schema=ORDERS)
    scenario.write_to("orders", batch)
    scenario.commit()
    return int(batch.nbytes)


def test_a_reader_that_stops_in_the_middle_releases_the_process(scenario: Scenario) -> None:
    size = large_scenario(scenario)
    with Scanner(scenario.settings, most=1) as scanner:
        for _ in range(2):
            with scanner.scan("orders") as scan:
                first = next(iter(scan))
                assert first.nbytes <= 1.1 * MOST_BYTES < size
            assert not psutil.pid_exists(scan._child.pid)
            assert list(scan) == []


def test_a_process_that_dies_is_replaced(scenario: Scenario, scanner: Scanner) -> None:
    large_scenario(scenario)
    scan = scanner.scan("orders")
    batches = iter(scan)
    next(batches)
    psutil.Process(scan._child.pid).kill()
    with pytest.raises(ScanFailed, match="ended with -9"):
        for _ in batches:
            pass
    with scanner.scan("orders") as again:
        assert sum(batch.num_rows for batch in again) == 64_000
    idle = psutil.Process(again._child.pid)
    idle.kill()
    idle.wait()
    with scanner.scan("orders") as third:
        assert sum(batch.num_rows for batch in third) == 64_000


def test_a_process_that_does_not_answer_is_replaced(scenario: Scenario, scanner: Scanner) -> None:
    scenario.write_segment()
    scenario.commit()
    assert rows_of(scanner.scan("orders")) == scenario.written
    freeze(scanner._idle[0].pid)
    with pytest.raises(ScanFailed, match="did not answer in time"):
        scanner.scan("orders", timeout=0.2)
    assert rows_of(scanner.scan("orders")) == scenario.written


def test_errors_come_back_as_what_they_are(scenario: Scenario, scanner: Scanner) -> None:
    with pytest.raises(ConfigError, match="cannot be a table"):
        scanner.scan("no/table")
    scenario.write_segment()
    scenario.commit()
    for name in scenario.data_files():
        Path(name.removeprefix("file://")).unlink()
    scan = scanner.scan("orders")
    with pytest.raises(CatalogUnavailable, match="orders"):
        list(scan)
    assert len(scanner._idle) == 1


def test_all_processes_end_with_the_scanner(scenario: Scenario) -> None:
    scanner = Scanner(scenario.settings)
    scan = scanner.scan("orders")
    other = scanner.scan("orders")
    other.close()
    scanner.close()
    assert list(scan) == []
    assert not psutil.pid_exists(scan._child.pid)
    assert not psutil.pid_exists(other._child.pid)
