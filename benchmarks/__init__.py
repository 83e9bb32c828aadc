"""Benchmarks: each compares with a peer or a floor in the same run, and prints ratios."""
