"""What each tier of the ingest server promises, after faults of every kind."""
