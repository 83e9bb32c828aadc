"""What the tests and the benchmarks of this repository share, and no user of the package needs."""
