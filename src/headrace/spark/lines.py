"""The lines of Spark that we run on, with the jars that belong to each: the one place for versions."""

from __future__ import annotations

from collections.abc import Collection as Names
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from headrace.errors import ConfigError
from headrace.spark.jars import Jar, fetch_jars


class Needs(StrEnum):
    """Jars that a pipeline may need and Spark itself does not bring."""

    ICEBERG = "iceberg"
    KAFKA = "kafka"
    HUDI = "hudi"
    S3 = "s3"
    SQLITE = "sqlite"
    """To read a SQL catalog that is an SQLite file, as that of `headrace serve` is."""
    POSTGRES = "postgres"
    """To read a SQL catalog that is in PostgreSQL."""


@dataclass(frozen=True)
class SparkLine:
    name: str
    pyspark: str
    jars: dict[Needs, tuple[Jar, ...]]
    checkpoint_package: str
    """Where Spark keeps the classes that write checkpoint folders."""


_ICEBERG = "1.12.0"
_DRIVERS = {
    Needs.SQLITE: (Jar("org.xerial", "sqlite-jdbc", "3.53.4.0"),),
    Needs.POSTGRES: (Jar("org.postgresql", "postgresql", "42.7.7", alone=True),),
    Needs.S3: (Jar("org.apache.iceberg", "iceberg-aws-bundle", _ICEBERG),),
}


def _kafka(scala: str, spark: str, token_provider: str, clients: str, pool: str) -> tuple[Jar, ...]:
    """Lists the jars one by one: the rest of what they depend on is in Spark."""
    return (
        Jar("org.apache.spark", f"spark-sql-kafka-0-10_{scala}", spark, alone=True),
        Jar("org.apache.spark", f"spark-token-provider-kafka-0-10_{scala}", token_provider, alone=True),
        Jar("org.apache.kafka", "kafka-clients", clients, alone=True),
        Jar("org.apache.commons", "commons-pool2", pool, alone=True),
    )


LINES = {
    line.name: line
    for line in (
        SparkLine(
            "3.5",
            "3.5.7",
            {
                Needs.ICEBERG: (Jar("org.apache.iceberg", "iceberg-spark-runtime-3.5_2.12", _ICEBERG),),
                Needs.KAFKA: _kafka("2.12", "3.5.7", "3.5.7", "3.4.1", "2.11.1"),
                Needs.HUDI: (Jar("org.apache.hudi", "hudi-spark3.5-bundle_2.12", "1.2.0", alone=True),),
                **_DRIVERS,
            },
            "org.apache.spark.sql.execution.streaming",
        ),
        SparkLine(
            "4.1",
            "4.1.3",
            {
                Needs.ICEBERG: (Jar("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", _ICEBERG),),
                # The token provider of 4.1 is not published.
                Needs.KAFKA: _kafka("2.13", "4.1.3", "4.0.0", "3.9.1", "2.12.1"),
                **_DRIVERS,
            },
            "org.apache.spark.sql.execution.streaming.checkpointing",
        ),
    )
}
DEFAULT_LINE = LINES["3.5"]


def installed_line() -> SparkLine:
    """The line of the PySpark that is installed."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        raise ConfigError("PySpark is not installed: pip install 'headrace[spark]'") from None
    for line in LINES.values():
        if installed.startswith(f"{line.name}."):
            return line
    known = " or ".join(line.pyspark for line in LINES.values())
    raise ConfigError(f"PySpark {installed} is installed, and Headrace runs on {known}: install one of them")


def jars_for(line: SparkLine, needs: Names[Needs]) -> list[Path]:
    """The files, which are downloaded if they are not there yet."""
    files: list[Path] = []
    for need in sorted(needs):
        if need not in line.jars:
            raise ConfigError(f"{need} is not published for Spark {line.name}: install pyspark 3.5.7")
        files += fetch_jars(f"spark-{line.name}-{need}", line.jars[need])
    return files
