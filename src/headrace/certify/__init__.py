"""Delivery guarantees, shown by runs in which things go wrong on purpose."""
