"""`headrace bench ingest` with a Kafka broker of its own as a peer.

python -m benchmarks.ingest [words and options of headrace bench ingest]
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
                ["--kafka", broker.bootstrap, *sys.argv[1:]],
                prog_name="python -m benchmarks.ingest",
                standalone_mode=False,
            )
    except HeadraceError as error:
        sys.exit(f"benchmarks.ingest: {error.message}")


if __name__ == "__main__":
    main()
