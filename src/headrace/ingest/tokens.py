"""The tokens file: who there is, and what each may do."""

from __future__ import annotations

import logging
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from headrace.errors import ConfigError, Unauthorized
from headrace.ingest.collections import check_name
from headrace.ingest.yaml_files import problem_of, read_yaml

log = logging.getLogger(__name__)

ALL = "*"
MOST_TOKEN_CHARACTERS = 4096
TokenRow = tuple[str, bytes, list[str], bool, list[str]]
"""A token as the port has it: name, digest of the secret, collections that it may write, whether it is an
administrator's, and collections that it may read."""


class Roles(BaseModel):
    """The roles of a token: what it allows."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    write: tuple[str, ...] = Field(default=(), strict=False)
    """Collections that may be created and written; "*" for all."""
    read: tuple[str, ...] = Field(default=(), strict=False)
    """Collections that may be described and read; "*" for all."""
    admin: bool = False
    """Everything."""

    @field_validator("write", "read")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name != ALL:
                try:
                    check_name(name)
                except ConfigError as error:
                    raise ValueError(error.message) from None
        return names


class _Entry(BaseModel):
    """A token as the file has it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    name: Annotated[str, Field(min_length=1, max_length=100)]
    token: Annotated[str, Field(min_length=16, max_length=MOST_TOKEN_CHARACTERS)] | None = None
    token_sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None
    roles: Roles

    @model_validator(mode="after")
    def _has_one_token(self) -> _Entry:
        if (self.token is None) == (self.token_sha256 is None):
            raise ValueError("give one of token and token_sha256")
        if self.token is not None and (not self.token.isascii() or not self.token.isprintable()):
            raise ValueError("a token has printable ASCII characters only, since it travels in a header")
        return self

    @property
    def digest(self) -> bytes:
        if self.token is not None:
            return digest_of(self.token)
        assert self.token_sha256 is not None
        return bytes.fromhex(self.token_sha256)


@dataclass(frozen=True)
class Identity:
    """A caller, identified by the name of the token."""

    name: str
    roles: Roles
    digest: bytes = b""

    @property
    def is_admin(self) -> bool:
        return self.roles.admin

    @property
    def row(self) -> TokenRow:
        """As the port takes it; what it does not decide on makes it another token all the same."""
        return (self.name, self.digest, list(self.roles.write), self.is_admin, list(self.roles.read))

    def may_write(self, collection: str) -> bool:
        return self._has(self.roles.write, collection)

    def may_read(self, collection: str) -> bool:
        return self._has(self.roles.read, collection)

    def may_see(self, collection: str) -> bool:
        """Returns whether it may know that there is such a collection, and how far it is."""
        return self.may_read(collection) or self.may_write(collection)

    def require_write(self, collection: str) -> None:
        if not self.may_write(collection):
            raise self._lacks(f"write collection {collection!r}", f"{collection!r} in its role 'write'")

    def require_read(self, collection: str) -> None:
        if not self.may_read(collection):
            raise self._lacks(f"read collection {collection!r}", f"{collection!r} in its role 'read'")

    def require_admin(self) -> None:
        if not self.is_admin:
            raise self._lacks("do this", "the role 'admin'")

    def _has(self, names: tuple[str, ...], collection: str) -> bool:
        return self.roles.admin or collection in names or ALL in names

    def _lacks(self, what: str, missing: str) -> Unauthorized:
        return Unauthorized(f"token {self.name!r} may not {what}: it lacks {missing}")


ANYBODY = Identity("anybody", Roles(admin=True))
"""Everyone, where there is no tokens file."""


def read_tokens(path: Path) -> tuple[Identity, ...]:
    entries = _parse(read_yaml(path, "tokens file"), f"tokens file {path}")
    if _mode(path) & stat.S_IROTH:
        log.warning("tokens file %s can be read by everybody on this machine: chmod 600", path)
    return tuple(Identity(entry.name, entry.roles, entry.digest) for entry in entries)


def new_token(name: str, roles: Roles) -> tuple[str, str]:
    """A random token, and the entry for the tokens file, which does not hold it."""
    token = f"hr_{token_urlsafe(32)}"
    granted: dict[str, Any] = {"write": list(roles.write), "read": list(roles.read), "admin": roles.admin}
    entry = {"name": name, "token_sha256": digest_of(token).hex(), "roles": granted}
    _parse([entry], "token")
    return token, yaml.safe_dump([entry], sort_keys=False, allow_unicode=True)


def digest_of(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:  # gone since it was read
        return 0


def _parse(raw: Any, what: str) -> list[_Entry]:
    if not isinstance(raw, list) or not raw:
        raise ConfigError(f"{what}: write a list of tokens, each with name, token_sha256 and roles")
    try:
        entries = TypeAdapter(list[_Entry]).validate_python(raw)
    except ValidationError as error:
        raise ConfigError(f"{what}: {problem_of(error, _Entry)}") from None
    for key in ("name", "digest"):
        seen: dict[Any, str] = {}
        for entry in entries:
            value = getattr(entry, key)
            if value in seen:
                twice = "this name" if key == "name" else f"the token of {seen[value]!r}"
                raise ConfigError(f"{what}: entry {entry.name!r} has {twice} a second time")
            seen[value] = entry.name
    return entries
