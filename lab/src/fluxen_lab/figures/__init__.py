"""The papers' evaluations, reproduced: one subpackage per paper, found by `fluxen_lab.figures.figure`."""
