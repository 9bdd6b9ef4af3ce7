"""Zhu and Rundensteiner, "Adapting partitioned continuous query processing in distributed systems": its evaluation.

The engine is the real one on Spark; only the sites' service time is emulated (`fluxen_lab.emulate.served` says how).
"""

from fluxen_lab.figures.figure import Figure
from fluxen_lab.figures.zhu import benefits, slowed, windows

__all__ = ["FIGURES"]

FIGURES: dict[str, Figure] = {
    figure.name: figure for figure in (benefits.THROUGHPUT, benefits.TUPLES, *windows.FIGURES, slowed.FIGURE)
}
