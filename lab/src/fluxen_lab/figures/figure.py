"""One reproduced figure of a paper: run writes data, plot only reads it, numbers are what its claims are about.

Figures live in the subpackages beside this file, one per paper; each exports ``FIGURES``, a dict of `Figure` keyed by
its name ("gedik/3"). A claim is data (`fluxen_lab.figures.claim`); `fluxen_lab.figures.reproduce` runs and judges, and
the command line in front of it is `fluxen_lab.commands.figure`.

A figure knows one seed: `reproduce` repeats it and averages the rows. A mutation is a set of parameters that takes away
what a claim is about: a policy replaced by `Static`, a load that is not there. A claim must fail under its mutation.

>>> from fluxen_lab.figures.claim import between
>>> def run(options):
...     return [{"x": x, "y": x * x * options.params.get("slope", 1)} for x in range(3)]
>>> claim = Claim(claim="y ends at 4", paper="about 5", bands={"last": between(3, 6)}, mutation="a flat line")
>>> figure = Figure(name="toy/1", title="A toy", run=run, plot=lambda rows, path: None, by=("x",), claims=(claim,),
...                 numbers=lambda rows: {"last": rows[-1]["y"]}, mutations={"a flat line": {"slope": 0}})
>>> claim.holds(figure.numbers(figure.run(RunOptions())))
True
>>> claim.holds(figure.numbers(figure.run(RunOptions().but(figure.mutations["a flat line"]))))
False
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fluxen.errors import ConfigError
from fluxen.policies.base import Policy
from fluxen_lab.figures.claim import Claim, Numbers

__all__ = [
    "Figure",
    "Place",
    "Row",
    "RunOptions",
    "figure_names",
    "figures",
    "find",
    "read_rows",
    "write_rows",
]

Value = bool | int | float | str | None
Row = dict[str, Any]
"""A flat record: column name -> bool, int, float, str or None."""


Place: TypeAlias = Literal["in process", "simulator", "Spark"]
"""What a figure runs on: the real code without an engine, `fluxen.sim`, or a Spark session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a run may depend on: the seed, where to say how far it is, and what tests and mutations change.

    seeds  how many seeds to repeat it with, None for as many as the figure says
    kept   rows of runs that several figures show, for as long as these options live
    """

    seed: int = 1
    seeds: int | None = None
    progress: Callable[[str], None] = field(default=lambda message: None)
    params: Mapping[str, Any] = field(default_factory=dict)
    kept: dict[Any, list[Row]] = field(default_factory=dict)

    def but(self, changes: Mapping[str, Any]) -> RunOptions:
        """With some parameters changed."""
        return replace(self, params={**self.params, **changes})

    def policy(self, curve: str, usual: Policy) -> Policy:
        """The policy of a curve: `usual`, or what the parameter "policies" puts in its place."""
        other = self.params.get("policies", {}).get(curve)
        return usual if other is None else other()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure: ``run`` measures with one seed, ``plot`` draws rows into a PNG, ``numbers`` reads off what claims need.

    by         columns that tell the rows of one seed apart; rows of several seeds are averaged over equal ones
    mutations  parameters under which claims must fail, by a name that says what is taken away
    emulated   what stands for something that did not happen, in words; empty if all work is real
    """

    name: str
    title: str
    run: Callable[[RunOptions], list[Row]]
    plot: Callable[[list[Row], Path], None]
    by: tuple[str, ...]
    numbers: Callable[[list[Row]], Numbers]
    claims: tuple[Claim, ...]
    mutations: Mapping[str, Mapping[str, Any]]
    seeds: int = 1
    place: Place = "in process"
    emulated: str = ""

    def __post_init__(self) -> None:
        wanted = {claim.mutation for claim in self.claims}
        if wanted != set(self.mutations) or not wanted:
            raise ConfigError(
                f"figure {self.name}: expected a mutation for every claim and a claim for every mutation, got "
                f"{sorted(wanted ^ set(self.mutations)) or 'none'} on one side only"
            )


def figures() -> dict[str, Figure]:
    """Every figure of every paper, imported now."""
    package = importlib.import_module("fluxen_lab.figures")
    found: dict[str, Figure] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.ispkg:
            found.update(_of_paper(module.name))
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def figure_names() -> list[str]:
    """Names of all figures, papers in alphabetical order and numbers in numeric order."""
    return list(figures())


def find(name: str) -> Figure:
    """The figure called ``name``; imports only the subpackage of that paper."""
    paper, _, number = name.partition("/")
    if number and paper.isidentifier():
        found = _of_paper(paper)
        if name in found:
            return found[name]
    raise ConfigError(
        f"unknown figure {name!r}: expected PAPER/NUMBER such as 'gedik/3'; `fluxen figure --list` shows all"
    )


def write_rows(rows: Sequence[Mapping[str, Value]], path: Path) -> None:
    """Write flat rows as CSV; columns in the order in which they first appear."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_to_text(row.get(column)) for column in columns])


def read_rows(path: Path) -> list[Row]:
    """Read what `write_rows` wrote; numbers and booleans come back as such, an empty cell as None."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{column: _from_text(text) for column, text in row.items()} for row in csv.DictReader(file)]


def _of_paper(paper: str) -> dict[str, Figure]:
    module_name = f"fluxen_lab.figures.{paper}"
    if importlib.util.find_spec(module_name) is None:
        return {}
    module = importlib.import_module(module_name)
    return dict(getattr(module, "FIGURES", {}))


def _order(name: str) -> tuple[str, int, str]:
    paper, _, number = name.partition("/")
    digits = number[: len(number) - len(number.lstrip("0123456789"))]
    return paper, int(digits or 0), number


def _to_text(value: Value) -> str:
    if value is None:
        return ""
    if hasattr(value, "item"):  # numpy scalars print as plain numbers
        value = value.item()
    return repr(value) if isinstance(value, float) else str(value)


def _from_text(text: str) -> Value:
    if text == "":
        return None
    if text in ("True", "False"):
        return text == "True"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
