"""Load on an ingest server, its peers under the same load, and what came of it."""
