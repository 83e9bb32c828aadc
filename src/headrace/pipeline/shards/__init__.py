"""Shards: ranges of key hashes, and the transaction of each in a task of Spark."""
