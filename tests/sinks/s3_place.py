"""A bucket as a user writes its options, and as somebody else reads it."""

from __future__ import annotations

import pyarrow.fs as pafs

from devtools.s3_server import S3Server


def s3_options(server: S3Server) -> dict[str, str]:
    return {
        "endpoint": server.endpoint,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
        "region": server.region,
        "allow_http": "true",
        "virtual_hosted_style_request": "false",
    }


def s3_reader(server: S3Server) -> pafs.S3FileSystem:
    """Of another library than the one that writes."""
    return pafs.S3FileSystem(
        access_key=server.access_key,
        secret_key=server.secret_key,
        endpoint_override=server.endpoint,
        region=server.region,
    )
