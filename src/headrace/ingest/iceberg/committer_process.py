"""The process that commits: answers a line of JSON on stdout to each on stdin.

The first line is the settings of the catalog. Then come requests: `{"id": 1, "watermarks": {...}}` and
`{"id": 2, "commit": {...}}`. Answers have an outcome for each collection, `{"id": 2, "outcomes": {"orders":
{"lsn": 7, "snapshot_id": 1, "position": {...}}}}`, with `{"error": {...}}` for one that has one, or they are
`{"id": 2, "error": {...}}`.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import headrace.ingest.iceberg.without_pandas  # noqa: F401 - before pyarrow looks for it
from headrace.errors import HeadraceError, UnexpectedFailure
from headrace.faults import reached
from headrace.ingest.iceberg.child import become_child
from headrace.ingest.iceberg.collection_commit import Observer
from headrace.ingest.iceberg.commit import Committer, Outcome
from headrace.ingest.iceberg.jobs import CommitJob
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.ingest.iceberg.tables import Tables

_log = logging.getLogger(__name__)


def _reached(step: str) -> None:
    reached(f"committer {step}")


def main(observe: Observer = _reached) -> None:
    """Tells the observer of the committer's steps, and of `started` and `answering`."""
    requests, answers = become_child()
    observe("started")
    committer = Committer(Tables(CatalogSettings.model_validate(next(requests))), observe)
    for request in requests:
        answer = {"id": request["id"], **_answer(committer, request)}
        observe("answering")
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _answer(committer: Committer, request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "commit" in request:
            outcomes = committer.commit(CommitJob.from_json(request["commit"]))
        else:
            asked = request["watermarks"]
            outcomes = committer.watermarks(asked["collections"], asked["log_id"])
    except HeadraceError as error:
        return {"error": json.loads(error.to_json())}
    except Exception as error:  # noqa: BLE001 - the server must hear of whatever it is
        _log.exception("a request failed")
        failure = UnexpectedFailure(f"the committer failed: {type(error).__name__}: {error}")
        return {"error": json.loads(failure.to_json())}
    return {"outcomes": {name: _as_json(outcome) for name, outcome in outcomes.items()}}


def _as_json(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, HeadraceError):
        return {"error": json.loads(outcome.to_json())}
    position = outcome.position.to_json()
    return {"lsn": outcome.lsn, "snapshot_id": outcome.snapshot_id, "position": position}


if __name__ == "__main__":
    main()
