"""An Iceberg REST catalog of one's own: Iceberg's own adapter, over a catalog in SQLite.

Jetty's configuration file iceberg_rest.xml puts it together, so that no Java has to be compiled.
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import ClassVar

from devtools.java_server import JavaServer, http_status, java_command, write_properties
from devtools.s3_server import S3Server
from headrace.spark.jars import Jar, fetch_jars, pyspark_jars

_ICEBERG = "1.11.0"  # the last with a tests jar, which has the adapter
_JETTY = "12.1.8"
_JARS = [
    Jar("org.apache.iceberg", "iceberg-core", _ICEBERG),
    Jar("org.apache.iceberg", "iceberg-core", _ICEBERG, "tests"),
    Jar("org.apache.iceberg", "iceberg-aws", _ICEBERG),
    Jar("org.apache.iceberg", "iceberg-aws-bundle", _ICEBERG),
    Jar("org.eclipse.jetty", "jetty-xml", _JETTY),
    Jar("org.eclipse.jetty.ee10", "jetty-ee10-servlet", _JETTY),
    Jar("org.xerial", "sqlite-jdbc", "3.53.4.0"),
]
_HADOOP_AND_LOGGING = [
    "hadoop-client-api",
    "hadoop-client-runtime",
    "jcl-over-slf4j",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
]


class IcebergRestCatalog(JavaServer):
    """Keeps the tables' files in `warehouse`, such as "s3://bucket/path" on the server `s3`, or a folder."""

    name: ClassVar[str] = "Iceberg REST catalog"

    def __init__(self, warehouse: str, s3: S3Server | None = None) -> None:
        super().__init__()
        self._warehouse = warehouse
        self._s3 = s3

    @classmethod
    def jars(cls) -> list[Path]:
        return fetch_jars("iceberg-rest", _JARS) + pyspark_jars(*_HADOOP_AND_LOGGING)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def iceberg_properties(self) -> dict[str, str]:
        """What `pyiceberg.catalog.load_catalog` wants to know."""
        files = self._s3.iceberg_properties() if self._s3 else {}
        return {"type": "rest", "uri": self.uri, **files}

    def _prepare(self, home: Path) -> None:
        write_properties(home / "catalog.properties", self._catalog_properties(home))

    def _catalog_properties(self, home: Path) -> dict[str, str]:
        properties = {
            "uri": f"jdbc:sqlite:{home / 'catalog.db'}",
            "jdbc.schema-version": "V1",
            "clients": "1",  # SQLite refuses a second writer
            "warehouse": self._warehouse,
        }
        if self._s3 is None:
            return properties
        return properties | {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self._s3.endpoint,
            "s3.access-key-id": self._s3.access_key,
            "s3.secret-access-key": self._s3.secret_key,
            "s3.path-style-access": "true",
            "client.region": self._s3.region,
        }

    def _command(self, home: Path) -> list[str]:
        configuration = Path(__file__).with_suffix(".xml")
        values = [f"headrace.port={self.port}", f"headrace.catalog={home / 'catalog.properties'}"]
        return java_command(
            home, self.jars(), "org.eclipse.jetty.xml.XmlConfiguration", *values, str(configuration)
        )

    def _answers(self) -> bool:
        return http_status(self.port, "/v1/config") == HTTPStatus.OK
