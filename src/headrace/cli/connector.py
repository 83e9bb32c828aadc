"""`headrace connector`: serves a connector over gRPC."""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path

import click
import grpc

from headrace.cli.signals import StopSignal
from headrace.connectors import connector_names, find_connector
from headrace.errors import ConfigError
from headrace.protocol.grpc import GrpcServer
from headrace.protocol.messages import Spec

EXAMPLES = """\b
Examples:
  headrace connector sqlite --grpc 127.0.0.1:9000
  headrace connector postgres --grpc unix:/run/headrace/postgres.sock
  headrace connector postgres --grpc 0.0.0.0:9000 --tls-cert cert.pem --tls-key key.pem --tls-client-ca ca.pem
  headrace connector sqlite --spec"""

GRACE_SECONDS = 5.0
"""How long streams may continue after a signal to stop, to finish a commit that has begun."""

READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog=EXAMPLES)
@click.argument("name")
@click.option("--grpc", "address", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
@click.option("--spec", is_flag=True, help="Print what the connector needs to be configured, as JSON.")
@click.option("--tls-cert", type=READABLE, help="This server's certificate chain, in PEM.")
@click.option("--tls-key", type=READABLE, help="The certificate's private key, in PEM.")
@click.option(
    "--tls-client-ca", type=READABLE, help="Take only clients with a certificate of this authority."
)
def connector(
    name: str,
    address: str | None,
    spec: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
) -> None:
    """Serves the connector NAME to runtimes, until it is interrupted.

    Whoever can call it uses what this host may use: its files, and its passwords for the endpoint. So on an
    address that others can reach it takes clients by their certificates alone.
    """
    found = find_connector(name)
    if spec:
        answer = found.spec(Spec())
        click.echo(json.dumps(answer.__dict__, indent=2))
        return
    if address is None:
        raise ConfigError("say where to listen with --grpc HOST:PORT, or ask for --spec")
    credentials = _credentials(tls_cert, tls_key, tls_client_ca)
    if tls_client_ca is None and not is_local(address):
        raise ConfigError(
            f"{address} can be reached by others, who could use this host's files and passwords: give "
            "--tls-cert, --tls-key and --tls-client-ca, so that only clients with a certificate are served"
        )
    server = GrpcServer(found, address, credentials)
    stop = StopSignal()
    server.start()
    shown = address if address.startswith("unix:") else f"{address.rsplit(':', 1)[0]}:{server.port}"
    click.echo(f"connector {name} listens on {shown}")
    stop.wait()
    server.stop(GRACE_SECONDS)
    # A stream may wait in its endpoint for as long as that pleases. It has committed or it has not, and
    # its next opening will find out; we do not wait for it.
    os._exit(0)


connector.help = (connector.help or "") + f"\n\nNAME is one of: {', '.join(connector_names())}."


def is_local(address: str) -> bool:
    """Returns whether only this machine can reach an address."""
    if address.startswith("unix:"):
        return True
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError(f"--grpc {address}: expected HOST:PORT, such as 127.0.0.1:9000, or unix:/path")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, which may resolve to anything


def _credentials(
    cert: Path | None, key: Path | None, client_ca: Path | None
) -> grpc.ServerCredentials | None:
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise ConfigError("--tls-cert and --tls-key go together")
    return grpc.ssl_server_credentials(
        [(key.read_bytes(), cert.read_bytes())],
        root_certificates=client_ca.read_bytes() if client_ca else None,
        require_client_auth=client_ca is not None,
    )
