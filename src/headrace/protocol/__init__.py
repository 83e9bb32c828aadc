"""The materialization protocol: its messages, their order, and how they travel."""
