"""The papers' evaluations, reproduced: one subpackage per paper, found by `fluxen.experiments.figure`.

An optional extra (``pip install 'fluxen[experiments]'``); nothing outside `fluxen.cli` imports it.
"""
