"""`headrace serve`: takes writes by Arrow Flight and carries them to Iceberg."""

from __future__ import annotations

import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from headrace.cli.logs import LOG_FORMATS, setup_logging
from headrace.cli.signals import StopSignal
from headrace.config import HeadraceConfig, Part, ServeSettings, check_exposure, load_config
from headrace.ingest.access import Access
from headrace.ingest.engine_settings import EngineSettings
from headrace.ingest.server import IngestServer, Listen
from headrace.observe.http import ObserveServer
from headrace.observe.metrics import metrics_registry

log = logging.getLogger(__name__)

EXAMPLES = """\b
Examples:
  headrace serve
  headrace serve --data /var/lib/headrace --port 8815
  headrace serve --config headrace.yaml --log-format json"""

READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog=EXAMPLES)
@click.option("--config", "file", type=READABLE, help="A headrace.yaml; see `headrace schema`.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="The data folder  [./data]")
@click.option("--host", help="The address to listen on  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes a free one  [8815]")
@click.option(
    "--metrics-port", type=click.IntRange(0, 65535), help="The port of /metrics, /healthz and /readyz  [8816]"
)
@click.option("--no-metrics", is_flag=True, help="No such port.")
@click.option(
    "--accept-loss",
    multiple=True,
    metavar="WHAT",
    help="Go on without writes that are gone, named as the error that refused to names them.",
)
@click.option("--insecure", is_flag=True, help="Be reachable by others without TLS and tokens.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), default="text", show_default=True)
@click.option("--log-level", default="INFO", show_default=True, metavar="LEVEL")
def serve(
    file: Path | None,
    data: Path | None,
    accept_loss: tuple[str, ...],
    no_metrics: bool,
    log_format: str,
    log_level: str,
    **given: Any,
) -> None:
    """Serves Arrow Flight until it is interrupted; then it syncs what it has taken, and says so.

    Without a configuration everything is in the data folder: the log, the objects, the warehouse, and an
    SQLite catalog.
    """
    if log_level.upper() not in logging.getLevelNamesMapping():
        raise click.BadParameter(f"{log_level!r} is not a level: DEBUG, INFO, WARNING or ERROR")
    setup_logging(log_level, log_format)
    config = load_config(file, Part.SERVER)
    settings = _with_options(config.serve_settings(), no_metrics, given)
    check_exposure(settings)
    engine = replace(config.engine_settings(data), accept_loss=frozenset(accept_loss))
    synced = _serve(config, engine, settings, StopSignal())
    # Calls of clients that are still connected hold threads that the interpreter would wait for.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0 if synced else 1)


def _with_options(settings: ServeSettings, no_metrics: bool, given: dict[str, Any]) -> ServeSettings:
    """Applies the options of the command line, which take precedence over the file."""
    changes = {name: value for name, value in given.items() if value is not None and value is not False}
    if no_metrics:
        changes["metrics_port"] = None
    return replace(settings, **changes)


def _observe(
    server: IngestServer, config: HeadraceConfig, settings: ServeSettings, access: Access
) -> ObserveServer:
    assert settings.metrics_port is not None
    return ObserveServer(
        server.engine,
        metrics_registry(server.engine, log_limit_bytes=config.ingest.log_bytes, access=access),
        settings.metrics_host,
        settings.metrics_port,
        certificate=settings.tls.certificate if settings.tls else None,
        key=settings.tls.key if settings.tls else None,
        authorize=access.identify if access.needs_tokens else None,
    )


def _serve(config: HeadraceConfig, engine: EngineSettings, settings: ServeSettings, stop: StopSignal) -> bool:
    access = Access(settings.tokens)
    listen = Listen(settings.host, settings.port, settings.tls)
    server = IngestServer(engine, listen, access)
    observe = None
    try:
        if settings.metrics_port is not None:
            observe = _observe(server, config, settings, access)
            observe.start()
        server.start()
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, lambda *_: access.reload())
        click.echo(f"headrace listens on {server.url}")
        if observe is not None:
            click.echo(f"metrics on port {observe.port}: /metrics, /healthz, /readyz")
        click.echo(_what_survives(server))
        stop.wait()
        click.echo("stopping: taking no more writes, syncing those taken")
    finally:
        synced = server.stop()
        if observe is not None:
            observe.stop()
    last = server.engine.watermarks()["LOCAL_DISK"]
    if synced:
        click.echo(f"stopped: everything up to LSN {last} is on the disk")
    else:
        click.echo(f"stopped: the disk has not taken everything after LSN {last}", err=True)
    return synced


def _what_survives(server: IngestServer) -> str:
    """Returns a line on the tier whose name promises most: the default store is a folder."""
    store, survives = server.engine.store_url, server.engine.survives["OBJECT_STORAGE"]
    if survives == "machine":
        return f"object storage is {store}: what is there survives this machine"
    return f"object storage is {store}, a folder: what is there survives the process, not this machine"
