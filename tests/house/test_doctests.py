"""The examples in the source give what they say. Those of spark/ need no session: importing pyspark starts no JVM."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fluxen
import fluxen_lab

MODULES = sorted(
    found.name
    for package in (fluxen, fluxen_lab)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not found.name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["fluxen", "fluxen_lab", *MODULES])
def test_examples_of_a_module_give_what_they_say(name: str) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for found in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        runner.run(found, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def test_examples_are_found() -> None:
    assert len(MODULES) > 200
