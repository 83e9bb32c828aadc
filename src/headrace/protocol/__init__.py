"""The materialization protocol: its messages, their order, and their transports."""
