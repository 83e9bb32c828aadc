"""The write-ahead log: segment files, the writer that syncs for many at once, and recovery."""
