"""The figures of the Flux paper: in the simulator with the paper's parameters, some of them also on Spark."""

from fluxen_lab.figures.flux import (
    collection,
    degradation,
    degradation_spark,
    hybrid,
    memory,
    memory_spark,
    perturbation,
    perturbation_spark,
    transient,
    transient_spark,
)

__all__ = ["FIGURES"]

FIGURES = {
    figure.name: figure
    for figure in (
        transient.FIGURE,
        transient_spark.FIGURE,
        perturbation.FIGURE,
        perturbation_spark.FIGURE,
        degradation.FIGURE,
        degradation_spark.FIGURE,
        collection.FIGURE,
        memory.THROUGHPUT,
        memory_spark.FIGURE,
        memory.LATENCY,
        hybrid.FIGURE,
    )
}
