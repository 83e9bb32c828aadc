"""The user's configuration: the store, and the location and format of each binding's files."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from headrace.connectors.config import ConnectorConfig

SCHEMES = ("file", "s3", "s3a", "gs", "az", "abfs", "abfss")
Format = Literal["parquet", "jsonl"]
Compression = Literal["zstd", "gzip", "snappy", "none"]

_DEFAULT_COMPRESSION: dict[Format, Compression] = {"parquet": "zstd", "jsonl": "gzip"}
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")
_MOST_NAME_BYTES = 255  # of each part of a path, on most file systems


def _problem(sentence: str) -> PydanticCustomError:
    """Reports a problem whose text, unlike a ValueError's, reaches the user unchanged."""
    return PydanticCustomError("problem", "{sentence}", {"sentence": sentence})


class FilesEndpoint(ConnectorConfig):
    url: str = Field(
        min_length=1,
        description="Where the files go: a folder, or file:///folder, s3://bucket/path, gs://bucket/path or "
        "az://container/path.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="Of obstore for this kind of store, such as region, endpoint, access_key_id and "
        "secret_access_key; what is left out comes from the environment.",
        json_schema_extra={"writeOnly": True},
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        scheme = _SCHEME.match(url)
        if scheme and scheme[1] not in SCHEMES:
            raise _problem(
                f"there is no store of kind {scheme[1]!r}: use a folder, or one of {', '.join(SCHEMES)}"
            )
        return url

    @model_validator(mode="after")
    def _check_options(self) -> FilesEndpoint:
        if self.options and self.scheme == "file":
            raise _problem("a folder has no 'options': leave them out")
        return self

    @property
    def scheme(self) -> str:
        found = _SCHEME.match(self.url)
        return found[1] if found else "file"


class FilesResource(ConnectorConfig):
    prefix: str = Field(
        min_length=1, description="The path below the endpoint's url that all files of the binding are under."
    )
    format: Format = Field(default="parquet", description="How rows are written: parquet, or JSON lines.")
    compression: Compression | None = Field(
        default=None,
        description="How files are compressed; zstd for parquet and gzip for jsonl unless it is given.",
    )

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, prefix: str) -> str:
        parts = PurePosixPath(prefix).parts
        if prefix != "/".join(parts) or prefix.startswith("/") or {".", ".."} & set(parts):
            raise _problem("write it as names between single slashes, such as sales/orders")
        for part in parts:
            if part.startswith((".", "_")):
                raise _problem(f"{part!r} starts with {part[0]!r}, and readers skip such names: rename it")
            if len(part.encode(errors="replace")) > _MOST_NAME_BYTES or not part.isprintable():
                raise _problem(f"a name in it is longer than {_MOST_NAME_BYTES} bytes, or cannot be printed")
        return prefix

    @model_validator(mode="after")
    def _check_compression(self) -> FilesResource:
        if self.format == "jsonl" and self.compression == "snappy":
            raise _problem("'compression' of jsonl is gzip, zstd or none")
        return self

    @property
    def codec(self) -> Compression:
        return self.compression or _DEFAULT_COMPRESSION[self.format]
