"""Defects that are put into running pipelines on purpose: a scenario that does not notice its own is void."""
