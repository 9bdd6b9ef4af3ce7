"""The figures of Liu and Rundensteiner's 2005 report."""

from fluxen_lab.figures.liu import parallel, relocation, spill

__all__ = ["FIGURES"]

FIGURES = {figure.name: figure for figure in (parallel.SMALL, parallel.LARGE, spill.EVEN_RATES, relocation.GAPS)}
