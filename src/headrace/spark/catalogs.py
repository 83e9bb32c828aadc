"""An Iceberg catalog as Spark is configured for it, from how pyiceberg is."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.spark.lines import Needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
# pyiceberg's names where Iceberg for Java has others.
_RENAMED = {"s3.region": "client.region", "s3.session-token": "s3.session-token"}
# What only pyiceberg understands.
_PYTHON_ONLY = (
    "py-",
    "echo",
    "pool_pre_ping",
    "init_catalog_tables",
    "s3.connect-timeout",
    "s3.request-timeout",
)


def catalog_conf(settings: CatalogSettings) -> dict[str, str]:
    """The keys of Spark's configuration that make the catalog known under its own name."""
    own = _properties(dict(settings.properties))
    prefix = f"spark.sql.catalog.{settings.name}"
    return {prefix: _CATALOG, **{f"{prefix}.{name}": value for name, value in own.items()}}


def own_session(spark: SparkSession, settings: CatalogSettings | None) -> SparkSession:
    """A session that knows the catalog. A new one: it keeps a catalog that it has loaded, whatever it is told
    of it later, and nobody else's options are changed."""
    session = spark.newSession()
    for key, value in (catalog_conf(settings) if settings is not None else {}).items():
        session.conf.set(key, value)
    return session


def needs_of(settings: CatalogSettings) -> set[Needs]:
    properties = settings.properties
    needs = {Needs.ICEBERG}
    uri = properties.get("uri", "")
    if properties.get("type") == "sql":
        needs.add(Needs.SQLITE if uri.startswith("sqlite") else Needs.POSTGRES)
    if properties.get("warehouse", "").startswith("s3") or any(name.startswith("s3.") for name in properties):
        needs.add(Needs.S3)
    return needs


def _properties(given: dict[str, str]) -> dict[str, str]:
    kind = given.pop("type", "rest" if given.get("uri", "").startswith("http") else "")
    if not kind:
        raise ConfigError("catalog.properties.type: this key is missing: write sql, rest, hive or glue")
    spark = {
        _RENAMED.get(name, name): value for name, value in given.items() if not name.startswith(_PYTHON_ONLY)
    }
    if kind == "sql":
        spark |= _jdbc(spark.pop("uri", ""))
    else:
        spark["type"] = kind
    if any(name.startswith("s3.") for name in spark) or spark.get("warehouse", "").startswith("s3"):
        spark.setdefault("io-impl", _S3_IO)
        if "s3.endpoint" in spark:  # of a server that has no names for its buckets
            spark.setdefault("s3.path-style-access", "true")
    return spark


def _jdbc(uri: str) -> dict[str, str]:
    """SQLAlchemy's URL of a SQL catalog, in JDBC's form."""
    parts = urlsplit(uri)
    kind = parts.scheme.split("+")[0]
    common = {"type": "jdbc", "jdbc.schema-version": "V1"}
    if kind == "sqlite":
        return {**common, "uri": f"jdbc:sqlite:{uri.split(':///', 1)[-1]}"}
    if kind != "postgresql":
        raise ConfigError(
            f"catalog.properties.uri: Spark reads SQL catalogs in sqlite and postgresql, not in {kind!r}"
        )
    port = f":{parts.port}" if parts.port else ""
    query = f"?{parts.query}" if parts.query else ""
    spark = {**common, "uri": f"jdbc:postgresql://{parts.hostname}{port}{parts.path}{query}"}
    if parts.username:
        spark["jdbc.user"] = unquote(parts.username)
    if parts.password:
        spark["jdbc.password"] = unquote(parts.password)
    return spark
