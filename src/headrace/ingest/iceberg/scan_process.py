"""The process that scans: answers each request, a line of JSON on stdin, with frames on stdout.

The first line is the settings of the catalog.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from typing import Any, BinaryIO

import headrace.ingest.iceberg.without_pandas  # noqa: F401 - before pyarrow looks for it
from headrace.errors import HeadraceError, UnexpectedFailure
from headrace.ingest.iceberg.child import become_child
from headrace.ingest.iceberg.frames import Frame, write_frame
from headrace.ingest.iceberg.scan import scan
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.ingest.iceberg.tables import Tables

_log = logging.getLogger(__name__)


def main() -> None:
    requests, answers = become_child()
    tables = Tables(CatalogSettings.model_validate(next(requests)))
    for request in requests:
        try:
            _answer(tables, request, answers)
        except BrokenPipeError:
            return
        except HeadraceError as error:
            write_frame(answers, Frame.ERROR, error.to_json().encode())
        except Exception as error:  # noqa: BLE001 - the server must hear of whatever it is
            _log.exception("a scan failed")
            failure = UnexpectedFailure(f"the scan failed: {type(error).__name__}: {error}")
            write_frame(answers, Frame.ERROR, failure.to_json().encode())
        answers.flush()


def _answer(tables: Tables, request: dict[str, Any], answers: BinaryIO) -> None:
    committed, schema, batches = scan(tables, request["collection"], request["from_lsn"], request["to_lsn"])
    header = {
        "lsn": committed.lsn,
        "snapshot_id": committed.snapshot_id,
        "schema": b64encode(schema.serialize()).decode(),
    }
    write_frame(answers, Frame.HEADER, json.dumps(header).encode())
    for batch in batches:
        write_frame(answers, Frame.BATCH, memoryview(batch.serialize()))
    write_frame(answers, Frame.END)


if __name__ == "__main__":
    main()
