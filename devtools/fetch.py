"""Downloads all jars that the tests need, so that no test uses the network.

python -m devtools.fetch
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.kafka_broker import KafkaBroker
from devtools.s3_server import S3Server
from headrace.errors import HeadraceError
from headrace.spark.lines import installed_line, jars_for


def downloads() -> dict[str, Callable[[], object]]:
    """Returns a function for each set of jars that downloads the missing ones, by name."""
    line = installed_line()
    servers = (S3Server, KafkaBroker, IcebergRestCatalog)
    return {
        **{server.name: server.jars for server in servers},
        **{f"Spark's {need}": partial(jars_for, line, [need]) for need in line.jars},
    }


def main() -> int:
    logging.getLogger("headrace").setLevel(logging.ERROR)  # the progress bar shows downloads
    began = time.monotonic()
    wanted = downloads()
    columns = (TextColumn("Jars for the tests: {task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(wanted))
        for name, download in wanted.items():
            progress.update(task, description=name)
            try:
                download()
            except HeadraceError as error:
                sys.stderr.write(f"fetch: the jars of {name} cannot be had: {error}\n")
                return 1
            progress.advance(task)
    if (took := time.monotonic() - began) > 1:
        sys.stderr.write(f"Jars for the tests: all there, after {took:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
