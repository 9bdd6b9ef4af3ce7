"""One reproduced figure of a paper: run writes data, plot only reads it, claims judge it.

Figures live in the subpackages beside this file, one per paper; each exports ``FIGURES``, a dict of `Figure` keyed by
its name ("gedik/3"). The command line in front of this is `fluxen_lab.commands.figure`.

Guarantee: a claim is judged on the rows as they were read back from the CSV, so what is published is what was judged.

>>> def run(options):
...     return [{"x": x, "y": x * x} for x in range(options.params.get("n", 3))]
>>> def claims(rows):
...     worst = max(row["y"] for row in rows)
...     return [Claim(claim="y stays below 10", holds=worst < 10, measured=worst, paper="about 5")]
>>> figure = Figure(name="toy/1", title="A toy", run=run, plot=lambda rows, path: None, claims=claims)
>>> [claim.holds for claim in figure.claims(figure.run(RunOptions()))]
[True]
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fluxen.errors import ConfigError

__all__ = [
    "Claim",
    "Figure",
    "Row",
    "RunOptions",
    "figure_names",
    "figures",
    "find",
    "read_rows",
    "reproduce",
    "write_rows",
]

Value = bool | int | float | str | None
Row = dict[str, Any]
"""A flat record: column name -> bool, int, float, str or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One statement of the paper, what was measured here and what the paper reports."""

    claim: str
    holds: bool
    measured: Any
    paper: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a run may depend on: the seed, how often to repeat, where to say how far it is, overrides for tests."""

    seed: int = 1
    runs: int = 5
    progress: Callable[[str], None] = field(default=lambda message: None)
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure: ``run`` measures, ``plot`` draws rows into a PNG, ``claims`` judges rows."""

    name: str
    title: str
    run: Callable[[RunOptions], list[Row]]
    plot: Callable[[list[Row], Path], None]
    claims: Callable[[list[Row]], list[Claim]]


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


def reproduce(
    name: str, out_dir: Path | str, progress: Callable[[str], None] | None = None, options: RunOptions | None = None
) -> dict[str, Any]:
    """Run one figure into ``out_dir``: NAME.csv, NAME.png, and the verdicts as a dict ready for JSON."""
    figure = find(name)
    say = progress or (lambda message: None)
    options = options or RunOptions(progress=say)
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    stem = name.replace("/", "-")
    csv_path, png_path = out / f"{stem}.csv", out / f"{stem}.png"
    start = time.perf_counter()
    say(f"{name}: {figure.title}")
    write_rows(figure.run(options), csv_path)
    rows = read_rows(csv_path)
    say(f"{name}: plotting")
    figure.plot(rows, png_path)
    claims = figure.claims(rows)
    return {
        "figure": name,
        "title": figure.title,
        "claims": [asdict(claim) for claim in claims],
        "csv": str(csv_path),
        "png": str(png_path),
        "seconds": round(time.perf_counter() - start, 3),
    }


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
