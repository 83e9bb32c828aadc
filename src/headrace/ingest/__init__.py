"""The ingest server: takes writes by Arrow Flight and tells how durable each has become."""
