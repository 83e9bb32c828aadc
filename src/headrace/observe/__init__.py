"""Shows a running server from outside: its metrics and its health."""
