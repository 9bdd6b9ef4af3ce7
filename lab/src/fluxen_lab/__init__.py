"""The laboratory: benchmarks and the papers' figures."""
