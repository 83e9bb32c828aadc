"""Where collections are kept: an Iceberg catalog, as pyiceberg is configured for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from headrace.errors import ConfigError


class CatalogSettings(BaseModel):
    """Goes to other processes as JSON (`model_dump_json`, `model_validate_json`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "headrace"
    """Readers of a SQL catalog have to use the same name: tables are kept under it."""
    namespace: str = "headrace"
    """Where the tables are; levels are separated by dots."""
    properties: dict[str, str] = Field(default_factory=dict)
    """As for pyiceberg's `load_catalog`: `type`, `uri`, `warehouse`, `s3.*` and so on."""
    table_properties: dict[str, str] = Field(default_factory=dict)
    """Set on each table that is created, over our own choices."""

    def identifier(self, collection: str) -> tuple[str, ...]:
        return (*self.namespace.split("."), collection)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump()


def missing_file(settings: CatalogSettings) -> str:
    """Returns the problem if the catalog's SQLite file does not exist; empty otherwise.

    Opening the catalog would create an empty one.
    """
    scheme, _, path = settings.properties.get("uri", "").partition(":///")
    if scheme != "sqlite" or path == ":memory:" or Path(path).exists():
        return ""
    return f"there is no catalog at {path}: start `headrace serve` on its data folder, or correct its path"


def kept_on_host(settings: CatalogSettings) -> str:
    """Returns what of the catalog is on this host alone, in words; empty if it is all elsewhere."""
    uri, warehouse = (settings.properties.get(name, "") for name in ("uri", "warehouse"))
    if uri.startswith("sqlite:"):
        return "a catalog that is a file on this host"
    if warehouse.startswith(("file:", "/")):
        return "a warehouse that is a folder on this host"
    return ""


def embedded_catalog(data_dir: Path) -> CatalogSettings:
    """A SQLite file and a folder, which Spark reads with its `jdbc` catalog."""
    folder = data_dir.absolute()
    if set(str(folder)) & set("?#%"):
        raise ConfigError(
            f"the data folder {folder} has ?, # or % in its path, which URLs cannot: choose another"
        )
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    return CatalogSettings(properties=properties)
