"""What can be seen of a running server from outside: metrics, and whether it is well."""
