"""Reads a connector's configuration, as a user wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from headrace.errors import ConfigError


class ConnectorConfig(BaseModel):
    """Base of endpoint and resource configurations: frozen, with unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


Config = TypeVar("Config", bound=ConnectorConfig)


def read_config(kind: type[Config], raw: Mapping[str, Any], what: str) -> Config:
    """Returns the configuration as an object, or raises one sentence about the first problem."""
    try:
        return kind.model_validate(dict(raw))
    except ValidationError as error:
        # Inputs are left out: one of them may be a password.
        problem = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        known = ", ".join(field.alias or name for name, field in kind.model_fields.items())
        where = f"{what}: key {key!r}" if key else what
        raise ConfigError(f"{where}: {problem['msg']}; the keys are {known}") from None
