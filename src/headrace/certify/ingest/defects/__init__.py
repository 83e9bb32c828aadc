"""Defects that are loaded into a server, so that it is seen whether a scenario notices them."""
