"""What takes part in the two-phase commit of an epoch."""
