"""Gedik, "Partitioning functions for stateful data parallelism in stream processing": its evaluation, reproduced."""

from fluxen.experiments.figure import Figure
from fluxen.experiments.gedik import balance, ours, size, timing, toy

FIGURES: dict[str, Figure] = {
    "gedik/1": toy.FIGURE,
    **balance.FIGURES,
    **size.FIGURES,
    **timing.FIGURES,
    ours.FIGURE.name: ours.FIGURE,
}
