"""The user's configuration: the server, the credentials, and the tables."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from headrace.connectors.config import ConnectorConfig
from headrace.connectors.postgres.names import name_problem
from headrace.connectors.postgres.urls import parse_url
from headrace.connectors.sql.connector import SqlResource

# Also at the property itself, where forms look for it: an optional secret has it only inside of an anyOf.
_SECRET: dict[str, Any] = {"format": "password", "writeOnly": True}


def _problem(sentence: str) -> PydanticCustomError:
    """Reports a problem whose text, unlike a ValueError's, reaches the user unchanged."""
    return PydanticCustomError("problem", "{sentence}", {"sentence": sentence})


def _checked_name(name: str) -> str:
    if problem := name_problem(name):
        raise _problem(problem)
    return name


Name = Annotated[str, AfterValidator(_checked_name)]


class PostgresEndpoint(ConnectorConfig):
    url: SecretStr | None = Field(
        default=None,
        description="Where the database is, as postgresql://user:password@host:5432/database. "
        "Parameters of libpq may follow, as ?name=value. Instead of host, port, database and user.",
        json_schema_extra=_SECRET,
    )
    host: str | None = Field(
        default=None, min_length=1, description="The server's host name or address, or its socket's folder."
    )
    port: int = Field(default=5432, ge=1, le=65535, description="The server's port.")
    database: str | None = Field(default=None, min_length=1, description="The database to connect to.")
    user: str | None = Field(default=None, min_length=1, description="The role to sign in as.")
    password: SecretStr | None = Field(
        default=None, description="The password, unless it is in the url.", json_schema_extra=_SECRET
    )
    password_env: str | None = Field(
        default=None,
        min_length=1,
        description="An environment variable that holds the password, where it is not given otherwise.",
    )
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] | None = Field(
        default=None, description="Whether TLS is used and what it verifies; libpq's own default is prefer."
    )
    sslrootcert: str | None = Field(
        default=None, description="A file of the authorities that the server's certificate is verified by."
    )
    sslcert: str | None = Field(default=None, description="A file with the client's certificate.")
    sslkey: str | None = Field(default=None, description="A file with the client certificate's key.")
    schema_name: Name = Field(
        default="public",
        alias="schema",
        description="The schema of the checkpoints, and of tables whose binding names no other.",
    )
    connect_timeout: int | None = Field(
        default=None,
        ge=2,
        description="How many seconds to wait for a connection; 10 unless the url says otherwise.",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and parse_url(url.get_secret_value()) is None:
            raise _problem(
                "it does not read as postgresql://user:password@host:5432/database; "
                "write characters such as @ : / ? # % within a part as %40 %3A %2F %3F %23 %25",
            )
        return url

    @field_validator("host", "database", "user", "password")
    @classmethod
    def _check_text(cls, text: str | SecretStr | None) -> str | SecretStr | None:
        plain = text.get_secret_value() if isinstance(text, SecretStr) else text or ""
        # libpq would repeat it in its complaint.
        if "\0" in plain or any("\ud800" <= character <= "\udfff" for character in plain):
            raise _problem("it holds a character that no connection can carry")
        return text

    @model_validator(mode="after")
    def _check_one_address(self) -> PostgresEndpoint:
        if (self.url is None) == (self.host is None):
            raise _problem("give exactly one of 'url' and 'host'")
        for name in ("port", "database", "user"):
            if self.url is not None and name in self.model_fields_set:
                raise _problem(f"'{name}' is part of 'url': write it there")
        for name in ("database", "user"):
            if self.host is not None and getattr(self, name) is None:
                raise _problem(f"'host' needs '{name}' as well")
        return self


class PostgresResource(SqlResource):
    table: Name = Field(description="The table to materialize into.")
    schema_name: Name | None = Field(
        default=None, alias="schema", description="The table's schema, if it is not the endpoint's."
    )
