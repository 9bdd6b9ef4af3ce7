"""Generators: the rows that benchmarks and figures run on, each drawn from a seed."""
