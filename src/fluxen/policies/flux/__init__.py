"""Flux: balance load and memory by swapping partition groups in pairs."""
