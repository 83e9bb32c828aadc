"""The complete `headrace.yaml`, and how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr

from headrace.config.checks import check_pipeline
from headrace.config.collections import CollectionConfig
from headrace.config.materializations import MaterializationConfig
from headrace.config.pipeline import materialization_settings
from headrace.config.reading import Origin, Wrong
from headrace.config.server import IngestConfig, ServeConfig, ServeSettings, StoreConfig
from headrace.config.values import FilePath, Location, Options, Section, text_for
from headrace.errors import ConfigError
from headrace.ingest.engine_settings import EngineSettings, SessionLimits
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.ingest.yaml_files import YamlFile, read_marked_yaml
from headrace.pipeline.settings import PipelineSettings, Profile
from headrace.spark.session import SparkSettings


class Part(Enum):
    """The part of a file that a command uses. Commands with different secrets may share one file."""

    SERVER = ("serve", "store", "ingest")
    PIPELINE = ("state", "profile", "spark", "collections", "materializations")

    @property
    def unread(self) -> tuple[str, ...]:
        return tuple(key for part in Part if part is not self for key in part.value)


class StateConfig(Section):
    url: Location
    """A folder, or s3://bucket/prefix, gs:// or az://."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Of obstore, for this kind of store."""


class SparkConfig(Section):
    master: str = ""
    """A cluster's, or local[N]; one that spark-submit names outranks it. Without either, all cores."""
    conf: Options = Field(default_factory=dict, repr=False)
    """Of Spark itself."""


class HeadraceConfig(Section):
    data: FilePath = Path("data")
    """The server's folder: its log and, unless other keys say otherwise, everything else."""
    serve: ServeConfig = ServeConfig()
    """Who reaches the server, and how."""
    store: StoreConfig | None = None
    """Object storage; without it, a folder in the data folder."""
    catalog: CatalogSettings | None = Field(default=None, repr=False)
    """The Iceberg catalog; without it or its properties, SQLite and a warehouse in the data folder."""
    ingest: IngestConfig = IngestConfig()
    """How writes travel."""
    state: Annotated[StateConfig, text_for("url")] | None = None
    """Where pipelines keep recovery logs and Spark's checkpoints; without it, `state` in the data folder."""
    profile: Profile = Profile.SINGLE_NODE_DURABLE
    """What the state of pipelines survives."""
    spark: SparkConfig = SparkConfig()
    """Where pipelines run."""
    collections: dict[str, CollectionConfig] = Field(default_factory=dict)
    """What there is to materialize, by name."""
    materializations: dict[str, MaterializationConfig] = Field(default_factory=dict)
    """Views of collections in endpoints, by name."""

    _origin: Origin | None = PrivateAttr(None)

    def serve_settings(self) -> ServeSettings:
        return self.serve.settings()

    def engine_settings(self, data: Path | None = None) -> EngineSettings:
        """Returns the engine's settings. `data` takes precedence over the file's."""
        folder = data or self.data
        limits = self.serve.limits
        return EngineSettings(
            data=folder,
            store_url=self.store.url if self.store else "",
            store_options=self.store.options if self.store else {},
            catalog=self._catalog(folder) if self.catalog else None,
            commit_interval=self.ingest.commit_interval,
            commit_timeout=self.ingest.commit_timeout,
            most_log_bytes=self.ingest.log_bytes,
            free_bytes=self.ingest.free_bytes,
            log=self.ingest.log_limits(),
            session=SessionLimits(
                limits.message_bytes, limits.unsynced_bytes, limits.ranges, limits.receive_bytes
            ),
            stuck=self.ingest.quarantine.limits(),
        )

    def pipeline_settings(self, data: Path | None = None, names: Sequence[str] = ()) -> PipelineSettings:
        """Returns the settings of the materializations with these names, or of all. `data` takes precedence
        over the file's."""
        folder = data or self.data
        state = self.state or StateConfig(url=(folder / "state").absolute().as_uri())
        return PipelineSettings(
            materializations=tuple(
                materialization_settings(name, self.materializations[name], self.collections, state.url)
                for name in self._names(names)
            ),
            state_url=state.url,
            state_options=state.options,
            catalog=self._catalog(folder),
            spark=SparkSettings(self.spark.master, self.spark.conf),
            profile=self.profile,
        )

    def catalog_settings(self, data: Path | None = None) -> CatalogSettings:
        """Returns the catalog of collections and of tables that sinks write. `data` takes precedence over the
        file's."""
        return self._catalog(data or self.data)

    def _names(self, asked: Sequence[str]) -> Sequence[str]:
        known = list(self.materializations)
        if not known:
            raise self.error(("materializations",), "there are none: add one")
        for name in asked:
            if name not in known:
                raise self.error(("materializations",), f"there is no {name!r}; there are {', '.join(known)}")
        return list(dict.fromkeys(asked)) or known

    def _catalog(self, folder: Path) -> CatalogSettings:
        if self.catalog is None:
            return embedded_catalog(folder)
        if self.catalog.properties:
            return self.catalog
        return self.catalog.model_copy(update={"properties": embedded_catalog(folder).properties})

    def error(self, path: tuple[Any, ...], sentence: str) -> ConfigError:
        """Returns an error about a key, with its line if that is known."""
        origin = self._origin or Origin("configuration", Path(), YamlFile(None))
        return origin.error(path, sentence)

    @classmethod
    def read(cls, raw: Any, folder: Path, what: str) -> Self:
        """Reads and validates a file; `what` begins the sentences of its errors."""
        return cls._read(Origin(what, folder, YamlFile(raw)))

    @classmethod
    def _read(cls, origin: Origin, part: Part | None = None) -> Self:
        config = origin.read(cls, part.unread if part else ())
        config._origin = origin
        try:
            check_pipeline(config)
        except Wrong as wrong:
            raise origin.error(wrong.path, wrong.sentence) from None
        return config

    @classmethod
    def load(cls, path: Path, part: Part | None = None) -> Self:
        file = read_marked_yaml(path, "configuration")
        return cls._read(Origin(f"configuration {path}", path.parent, file), part)


def load_config(path: Path | None = None, part: Part | None = None) -> HeadraceConfig:
    """Returns a file's configuration; without a file, the defaults, with the data in the current folder.

    With a `part`, the keys of other parts are ignored.
    """
    if path is None:
        return HeadraceConfig.read({}, Path(), "defaults")
    return HeadraceConfig.load(path, part)


def config_schema() -> dict[str, Any]:
    """Returns the JSON Schema of `headrace.yaml`."""
    schema = HeadraceConfig.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "headrace.yaml"}
