"""The epoch loop over a runtime, and the graph of stages."""
