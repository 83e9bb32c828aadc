"""The user's configuration: the server, the credentials, and the keys of documents."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from headrace.connectors.config import ConnectorConfig
from headrace.connectors.redis.urls import parse_url

OWN_PREFIX = "headrace"
"""The prefix of the connector's own keys, before a colon."""

# Also at the property itself, where forms look for it: an optional secret has it only inside of an anyOf.
_SECRET: dict[str, Any] = {"format": "password", "writeOnly": True}


def _problem(sentence: str) -> PydanticCustomError:
    """Reports a problem whose text, unlike a ValueError's, reaches the user unchanged."""
    return PydanticCustomError("problem", "{sentence}", {"sentence": sentence})


class RedisEndpoint(ConnectorConfig):
    """A Redis server. Delivery is at least once: last write wins is exact, a sum may count a replay twice."""

    url: SecretStr = Field(
        description="Where the server is, as redis://user:password@host:6379/0, with rediss:// over TLS, "
        "or as unix://user:password@/path/to/socket?db=0.",
        json_schema_extra=_SECRET,
    )
    password: SecretStr | None = Field(
        default=None, description="The password, unless it is in the url.", json_schema_extra=_SECRET
    )
    password_env: str | None = Field(
        default=None,
        min_length=1,
        description="An environment variable that holds the password, where it is not given otherwise.",
    )
    ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file of the authorities that a rediss:// server's certificate is verified by, "
        "if they are not those of the operating system.",
    )
    timeout: float = Field(
        default=10.0, gt=0, description="How many seconds to wait for a connection, and for each answer."
    )
    replicas: int = Field(
        default=0,
        ge=0,
        description="How many replicas must have a transaction's writes before it counts as stored.",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr) -> SecretStr:
        if parse_url(url.get_secret_value()) is None:
            raise _problem(
                "it does not read as redis://user:password@host:6379/0; "
                "write characters such as @ : / ? # % within a part as %40 %3A %2F %3F %23 %25",
            )
        return url


class RedisResource(ConnectorConfig):
    """Where the documents of a binding go."""

    prefix: str = Field(
        min_length=1,
        description="What the keys of this binding's documents begin with, before a colon; "
        "with delta updates the key of the stream.",
    )
    format: Literal["json", "hash"] = Field(
        default="json",
        description="Whether a document is one JSON text, or a hash with a field for each of its fields.",
    )
    ttl: int | None = Field(
        default=None, ge=1, description="After how many seconds a document that is not stored again expires."
    )
    delta_updates: bool = Field(
        default=False,
        description="Add each transaction's combined updates to a stream instead of keeping one document "
        "per key.",
    )

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, prefix: str) -> str:
        if f"{prefix}:".startswith(f"{OWN_PREFIX}:"):
            raise _problem(f"keys that begin with '{OWN_PREFIX}:' are the connector's own: take another")
        return prefix

    @model_validator(mode="after")
    def _check_ttl(self) -> RedisResource:
        if self.ttl is not None and self.delta_updates:
            raise _problem("'ttl' is for documents, and a stream's entries do not expire: trim it instead")
        return self
