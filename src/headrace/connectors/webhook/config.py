"""The user's configuration of a webhook."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from headrace.connectors.config import ConnectorConfig
from headrace.connectors.webhook.address import Address, parse_address, path_problem

# Also at the property itself, where forms look for it: an optional secret has it only inside of an anyOf.
_SECRET: dict[str, Any] = {"format": "password", "writeOnly": True}

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
# Set by the connector, or about the connection itself.
_RESERVED_HEADERS = {
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "transfer-encoding",
}


def _problem(sentence: str) -> PydanticCustomError:
    """Reports a problem whose text, unlike a ValueError's, reaches the user unchanged."""
    return PydanticCustomError("problem", "{sentence}", {"sentence": sentence})


def _checked_address(address: SecretStr) -> SecretStr:
    if parse_address(address.get_secret_value()) is None:
        raise _problem(
            "it does not read as https://host/path; write characters such as @ : / ? # % within a part as "
            "%40 %3A %2F %3F %23 %25"
        )
    return address


def _checked_path(path: str) -> str:
    path = path.removeprefix("/") or "/"
    if problem := path_problem(path):
        raise _problem(problem)
    return path


class WebhookEndpoint(ConnectorConfig):
    address: Annotated[SecretStr, AfterValidator(_checked_address)] = Field(
        description="Where requests go, as https://host/path; a query may follow, and user:password@ precede "
        "the host.",
    )
    token: SecretStr | None = Field(
        default=None, min_length=1, description="A bearer token to sign in with.", json_schema_extra=_SECRET
    )
    token_env: str | None = Field(
        default=None,
        min_length=1,
        description="An environment variable that holds the token, where it is not given otherwise.",
    )
    headers: dict[str, SecretStr] = Field(
        default={}, description="More headers of each request; their values are kept secret."
    )
    authorities_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file of the authorities that the receiver's certificate is verified by, instead of "
        "the system's.",
    )
    timeout: float = Field(
        default=30,
        gt=0,
        le=3600,
        allow_inf_nan=False,
        description="How many seconds to wait for a connection, and for an answer.",
    )
    retry_for: float = Field(
        default=60,
        ge=0,
        allow_inf_nan=False,
        description="For how many seconds a request is tried again where that can help.",
    )
    batch_documents: int = Field(default=1000, ge=1, description="The most documents of a request.")
    batch_bytes: int = Field(
        default=1024 * 1024,
        ge=1,
        description="The most bytes of documents of a request, before compression; a larger document goes "
        "alone.",
    )
    concurrency: int = Field(default=1, ge=1, le=32, description="How many requests are under way at once.")
    gzip: bool = Field(default=False, description="Whether requests are compressed.")

    @field_validator("token")
    @classmethod
    def _check_token(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and not _HEADER_VALUE.fullmatch(token.get_secret_value()):
            raise _problem("it holds a character that no header can carry")
        return token

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        seen: set[str] = set()
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise _problem("a name of a header has letters, digits and hyphens")
            if name.lower() in _RESERVED_HEADERS:
                raise _problem(f"header {name} is the connector's to set: leave it out")
            if name.lower() in seen:
                raise _problem(f"header {name} is there twice: header names have no case")
            if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
                raise _problem(f"the value of header {name} is empty or holds what no header can carry")
            seen.add(name.lower())
        return headers

    @model_validator(mode="after")
    def _check_one_sign_in(self) -> WebhookEndpoint:
        ways = [
            self.token is not None or self.token_env is not None,
            any(name.lower() == "authorization" for name in self.headers),
            self.target.credentials is not None,
        ]
        if sum(ways) > 1:
            raise _problem(
                "there is more than one way to sign in: give one of 'token' (or 'token_env'), a header "
                "Authorization, and a user in 'address'"
            )
        if self.token is None and self.token_env is not None:
            found = os.environ.get(self.token_env, "")
            if not _HEADER_VALUE.fullmatch(found):
                raise _problem(
                    f"the environment variable {self.token_env} is not set to a token: set it where the "
                    "connector runs"
                )
        return self

    @property
    def target(self) -> Address:
        address = parse_address(self.address.get_secret_value())
        assert address is not None, "it was checked"
        return address

    @property
    def bearer_token(self) -> str | None:
        if self.token is not None:
            return self.token.get_secret_value()
        return os.environ.get(self.token_env) if self.token_env else None


class WebhookResource(ConnectorConfig):
    path: Annotated[str, AfterValidator(_checked_path)] = Field(
        default="/",
        description="Where the binding's requests go, relative to the endpoint's address; / for the address "
        "itself.",
    )
    delta_updates: bool = Field(
        default=True, description="Always true: a webhook can be sent updates and never be asked."
    )

    @field_validator("delta_updates")
    @classmethod
    def _check_delta_updates(cls, delta_updates: bool) -> bool:
        if not delta_updates:
            raise _problem(
                "a webhook takes delta updates only, since what it holds cannot be loaded: leave it out"
            )
        return delta_updates
