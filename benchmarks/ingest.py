"""`headrace bench ingest` with a Kafka broker of its own as a peer.

python -m benchmarks.ingest [options of headrace bench ingest]

Scenario 1 is run three times by turns, and the run in the middle counts.
"""

from __future__ import annotations

import sys

from devtools.kafka_broker import KafkaBroker
from headrace.cli.bench import ingest
from headrace.errors import HeadraceError


def main() -> None:
    try:
        with KafkaBroker() as broker:
            ingest.main(
                ["--kafka", broker.bootstrap, "--runs", "3", *sys.argv[1:]],
                prog_name="python -m benchmarks.ingest",
                standalone_mode=False,
            )
    except HeadraceError as error:
        sys.exit(f"benchmarks.ingest: {error.message}")


if __name__ == "__main__":
    main()
