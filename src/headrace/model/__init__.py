"""The words of the product as plain values. Of our own code this package imports only the errors."""
