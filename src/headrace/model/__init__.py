"""The words of the product as plain values; imports nothing else of ours but the errors."""
