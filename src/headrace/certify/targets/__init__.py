"""Endpoints that are certified: how a pipeline is told of one, and how somebody else reads it."""
