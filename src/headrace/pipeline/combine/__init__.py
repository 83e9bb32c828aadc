"""Combine: the documents of an epoch that have one key become one document."""
