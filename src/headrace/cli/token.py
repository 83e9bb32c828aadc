"""`headrace token`: makes a token for a client."""

from __future__ import annotations

import json

import click
import yaml
from pydantic import ValidationError

from headrace.errors import ConfigError
from headrace.ingest.tokens import Roles, new_token
from headrace.ingest.yaml_files import problem_of

EXAMPLES = """\b
Examples:
  headrace token shop --write orders --read orders
  headrace token backup --read '*'
  headrace token ops --admin --json"""


@click.command(epilog=EXAMPLES)
@click.argument("name")
@click.option("--write", multiple=True, metavar="COLLECTION", help="May create and write it; '*' for all.")
@click.option("--read", multiple=True, metavar="COLLECTION", help="May describe and read it; '*' for all.")
@click.option("--admin", is_flag=True, help="May do everything.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def token(name: str, write: tuple[str, ...], read: tuple[str, ...], admin: bool, as_json: bool) -> None:
    """Makes a token, which is shown this once, and prints its entry for the tokens file.

    The entry holds only a digest of it. NAME is what the server's messages call it.
    """
    if not (write or read or admin):
        raise ConfigError("a token without a role is of no use: say --write, --read or --admin")
    try:
        roles = Roles(write=write, read=read, admin=admin)
    except ValidationError as error:
        raise ConfigError(f"token {name!r}: {problem_of(error, Roles)}") from None
    made, entry = new_token(name, roles)
    if as_json:
        (parsed,) = yaml.safe_load(entry)
        click.echo(json.dumps({"token": made, "entry": parsed}))
        return
    click.echo(f"The token, for the client, which sends it as 'authorization: Bearer TOKEN':\n\n{made}\n")
    click.echo(f"Its entry for the tokens file, which serve.tokens names:\n\n{entry}", nl=False)
