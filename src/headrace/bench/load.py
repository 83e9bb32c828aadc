"""The native load generator as a child of the bench: `python -m headrace.bench.load`."""

from __future__ import annotations

import json
from typing import Any

from headrace._native import Load
from headrace.bench.tether import Tether, work
from headrace.errors import ConfigError, ServerUnavailable, UnexpectedFailure


def run(tether: Tether, command: dict[str, Any]) -> dict[str, Any]:
    try:
        load = Load(json.dumps(command))
    except ValueError as refusal:
        raise ConfigError(str(refusal)) from None
    done = tether.report(load.acknowledged)
    try:
        report: dict[str, Any] = json.loads(load.run())
    except OSError as failure:
        raise ServerUnavailable(str(failure)) from None
    finally:
        done.set()
    if errors := report.pop("errors"):
        first = errors[0]["message"]
        raise UnexpectedFailure(
            f"{len(errors)} of {report['clients']} clients failed, the first because {first}"
        )
    return report


if __name__ == "__main__":
    work(run)
