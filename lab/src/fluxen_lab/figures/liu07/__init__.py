"""The figures of Liu, Jbantova and Rundensteiner's 2007 paper, and one of a workload that drifts."""

from fluxen_lab.figures.liu import relocation, spill, strategies

__all__ = ["FIGURES"]

FIGURES = {
    figure.name: figure
    for figure in (
        spill.OUTPUT,
        spill.MEMORY,
        spill.VICTIMS,
        relocation.THRESHOLDS,
        relocation.BALANCE,
        relocation.VERSUS_SPILL,
        strategies.LAZY,
        strategies.ACTIVE_13,
        strategies.ACTIVE_14,
        strategies.DRIFT,
    )
}
