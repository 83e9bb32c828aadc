"""Collections that cannot be committed: when they are quarantined, and how they leave."""
