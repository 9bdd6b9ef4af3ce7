"""The figures of the Flux paper, in the simulator with the paper's parameters."""

from fluxen.experiments.flux import collection, degradation, hybrid, memory, perturbation, transient

__all__ = ["FIGURES"]

FIGURES = {
    figure.name: figure
    for figure in (
        transient.FIGURE,
        perturbation.FIGURE,
        degradation.FIGURE,
        collection.FIGURE,
        memory.THROUGHPUT,
        memory.LATENCY,
        hybrid.FIGURE,
    )
}
