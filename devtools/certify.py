"""`headrace certify` with a PostgreSQL, a Kafka broker, a Redis and an S3 server of its own.

    python -m devtools.certify --json docs/certification.json --markdown docs/certification.md

Options are those of `headrace certify`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.kafka_broker import KafkaBroker
from devtools.postgres_server import PostgresServer
from devtools.redis_server import RedisServer
from devtools.s3_server import S3Server

_BUCKET = "certification"


def main(arguments: list[str]) -> int:
    with ExitStack() as stack:
        postgres = stack.enter_context(PostgresServer())
        redis = stack.enter_context(RedisServer(append_only=True))
        kafka = stack.enter_context(KafkaBroker())
        s3 = stack.enter_context(S3Server())
        s3.create_bucket(_BUCKET)
        rest = stack.enter_context(IcebergRestCatalog(f"s3://{_BUCKET}/warehouse", s3))
        bucket = {
            "url": f"s3://{_BUCKET}",
            "options": s3.obstore_options(),
            "catalog": rest.iceberg_properties(),
        }
        endpoints = {
            "postgres": postgres.create_database(_BUCKET),
            "redis": redis.url,
            "kafka": kafka.bootstrap,
            "s3": json.dumps(bucket),
        }
        named = [f"--endpoint={kind}={value}" for kind, value in endpoints.items()]
        command = [sys.executable, "-m", "headrace", "certify", *named, *arguments]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
