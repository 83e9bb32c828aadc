"""Materializes into Redis; the runtime's recovery log is authoritative, and delivery is at least once."""

from headrace.connectors.redis.connector import RedisConnector

__all__ = ["RedisConnector"]
