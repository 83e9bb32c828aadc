"""Generated from proto/ by `make proto`; not written by hand."""
