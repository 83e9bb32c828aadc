"""A real S3 endpoint of one's own: s3proxy over a folder.

It checks signatures, and a create-only put (If-None-Match: *) is atomic. A compare-and-swap (If-Match) is
not, so nothing can be proven with one here.
"""

from __future__ import annotations

import re
import secrets
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

from devtools.java_server import JavaServer, http_status, java_command, write_properties
from headrace.spark.jars import Jar, fetch_jars

_JARS = [Jar("org.gaul", "s3proxy", "4.1.0", "jar-with-dependencies")]
# Outside of this, the server says that there is no such bucket.
_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class S3Server(JavaServer):
    name: ClassVar[str] = "S3 server"

    region = "us-east-1"

    def __init__(self) -> None:
        super().__init__()
        self.access_key = secrets.token_hex(8)
        self.secret_key = secrets.token_hex(16)

    @classmethod
    def jars(cls) -> list[Path]:
        return fetch_jars("s3proxy", _JARS)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def create_bucket(self, name: str) -> None:
        """Creates an empty bucket, also while the server is down."""
        assert self._home is not None, "start the server first"
        if not _BUCKET_NAME.fullmatch(name):
            raise ValueError(f"S3 has no bucket called {name!r}: 3 to 63 of a-z, 0-9, . and -")
        # The back end keeps a bucket as a folder.
        (self._home / "buckets" / name).mkdir()

    def obstore_options(self) -> dict[str, Any]:
        """What `obstore.store.S3Store` wants to know, beside the bucket."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "region": self.region,
            "virtual_hosted_style_request": False,
            "client_options": {"allow_http": True},
        }

    def iceberg_properties(self) -> dict[str, str]:
        """What a catalog of PyIceberg wants to know."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": self.region,
        }

    def _prepare(self, home: Path) -> None:
        (home / "buckets").mkdir()
        properties = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.access_key,
            "s3proxy.credential": self.secret_key,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(home / "buckets"),
        }
        write_properties(home / "s3proxy.properties", properties)

    def _command(self, home: Path) -> list[str]:
        return java_command(
            home, self.jars(), "org.gaul.s3proxy.Main", "--properties", str(home / "s3proxy.properties")
        )

    def _answers(self) -> bool:
        return http_status(self.port, "/") == HTTPStatus.FORBIDDEN
