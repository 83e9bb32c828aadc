"""Runs the epochs of materializations: sources, quality, combine, shards, sinks, and one recovery log."""
