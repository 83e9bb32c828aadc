"""What runs the epochs of a materialization."""
