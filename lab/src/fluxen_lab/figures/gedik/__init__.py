"""Gedik, "Partitioning functions for stateful data parallelism in stream processing": its evaluation, reproduced."""

from fluxen_lab.figures.figure import Figure
from fluxen_lab.figures.gedik import balance, loads, ours, size, timing, toy

FIGURES: dict[str, Figure] = {
    "gedik/1": toy.FIGURE,
    **balance.FIGURES,
    **size.FIGURES,
    **timing.FIGURES,
    loads.FIGURE.name: loads.FIGURE,
    ours.FIGURE.name: ours.FIGURE,
}
