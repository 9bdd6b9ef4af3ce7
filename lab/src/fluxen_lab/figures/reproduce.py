"""Run a figure and judge its claims; run it again without what they are about and see whether they fail then.

`fluxen_lab.figures.figure` says what a figure is, `fluxen_lab.figures.claim` what a claim is.

Guarantee: claims are judged on rows as they were read back from the CSV, so what is published is what was judged.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from fluxen_lab.figures.claim import Claim, Numbers
from fluxen_lab.figures.figure import Figure, Row, RunOptions, find, read_rows, write_rows
from fluxen_lab.provenance import code, commit, machine

__all__ = ["Measured", "averaged", "finished", "measure", "plain", "reproduce", "survivors"]

Json: TypeAlias = dict[str, Any]
SEED = "seed"
"""The column that tells from which seed a row is; the figures themselves do not see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a figure gave: rows averaged over the seeds, their numbers, and the numbers of every seed by itself."""

    rows: list[Row]
    numbers: Numbers
    each: list[Numbers]

    def holds(self, claim: Claim) -> bool:
        return all(claim.holds(numbers) for numbers in ([self.numbers] if not claim.each_seed else self.each))

    def spread(self, name: str) -> list[float | None]:
        """The least and the greatest of the seeds."""
        found = [number for each in self.each if (number := each[name]) is not None and math.isfinite(number)]
        return [_short(min(found)), _short(max(found))] if found else [None, None]


def reproduce(
    name: str,
    out_dir: Path | str,
    progress: Callable[[str], None] | None = None,
    options: RunOptions | None = None,
    *,
    mutate: bool = False,
) -> Json:
    """Run one figure into ``out_dir``: NAME.csv, NAME.png, and the verdicts, returned and as NAME.json.

    With `mutate` every claim also says whether it `holds_mutated`, on data that are kept as NAME.MUTATION.csv.
    """
    figure = find(name)
    say = progress or (lambda message: None)
    options = options or RunOptions(progress=say)
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    stem = name.replace("/", "-")
    csv_path, png_path = out / f"{stem}.csv", out / f"{stem}.png"
    start, of = time.perf_counter(), {"commit": commit(), "code": code(), "machine": machine()}  # as the run begins
    say(f"{name}: {figure.title}")
    measured = measure(figure, options, csv_path)
    say(f"{name}: plotting")
    figure.plot(measured.rows, png_path)
    mutated = {}
    for mutation, changes in figure.mutations.items() if mutate else ():
        say(f"{name}: {mutation}")
        mutated[mutation] = measure(figure, options.but(changes), out / f"{stem}.{_slug(mutation)}.csv")
    result = {
        "figure": name,
        "title": figure.title,
        "place": figure.place,
        "emulated": figure.emulated,
        "first_seed": options.seed,
        "seeds": len(measured.each),
        "claims": _verdicts(figure, measured, mutated),
        "mutated": mutate,
        "params": sorted(options.params),
        **of,
        "measured_on": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "csv": str(csv_path),
        "png": str(png_path),
        "seconds": round(time.perf_counter() - start, 3),
    }
    kept = {**result, "csv": csv_path.name, "png": png_path.name}  # they lie beside it, wherever that is
    (out / f"{stem}.json").write_text(json.dumps(kept, indent=1, default=plain) + "\n", encoding="utf-8")
    return result


def finished(name: str, out_dir: Path | str, options: RunOptions, *, mutate: bool = False) -> Json | None:
    """What an earlier run of the same code with the same options left in ``out_dir``, None if there is nothing."""
    path = Path(out_dir) / f"{name.replace('/', '-')}.json"
    if not path.exists() or options.params:
        return None
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    wanted = {"code": code(), "seeds": options.seeds or find(name).seeds, "first_seed": options.seed, "params": []}
    same = all(found.get(key) == value for key, value in wanted.items())
    files = {kind: str(path.parent / found[kind]) for kind in ("csv", "png")}
    return {**found, **files} if same and found["mutated"] >= mutate else None


def survivors(result: Json) -> list[str]:
    """Claims that hold and also hold under their mutation: they cannot fail, or nobody knows how."""
    return [claim["claim"] for claim in result["claims"] if claim["holds"] and claim.get("holds_mutated", False)]


def measure(figure: Figure, options: RunOptions, csv_path: Path) -> Measured:
    """Run a figure once per seed, write all rows, and read them back."""
    rows: list[Row] = []
    seeds = range(options.seed, options.seed + (options.seeds or figure.seeds))
    for seed in seeds:
        key = figure.run, seed, repr(sorted(options.params.items()))
        if key not in options.kept:
            options.kept[key] = figure.run(replace(options, seed=seed))
        rows += [{SEED: seed, **row} for row in options.kept[key]]
    write_rows(rows, csv_path)
    rows = read_rows(csv_path)
    mean = averaged(rows, figure.by)
    each = [figure.numbers(averaged([row for row in rows if row[SEED] == seed], figure.by)) for seed in seeds]
    return Measured(rows=mean, numbers=figure.numbers(mean), each=each)


def averaged(rows: Sequence[Row], by: Sequence[str]) -> list[Row]:
    """One row for all that are equal in the columns `by`, without the seed; other columns are means.

    >>> averaged([{"seed": 1, "x": 0, "y": 1}, {"seed": 2, "x": 0, "y": 2}, {"seed": 1, "x": 1, "y": None}], ["x"])
    [{'x': 0, 'y': 1.5}, {'x': 1, 'y': None}]
    """
    if len({row[SEED] for row in rows}) <= 1:
        return [{column: value for column, value in row.items() if column != SEED} for row in rows]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in by), []).append(row)
    return [
        {column: _mean([row[column] for row in group]) for column in group[0] if column != SEED}
        for group in groups.values()
    ]


def _mean(values: Sequence[Any]) -> Any:
    present = [value for value in values if value is not None]
    if not present or all(value == present[0] for value in present):
        return present[0] if present else None
    if any(isinstance(value, str) for value in present):
        return " | ".join(dict.fromkeys(str(value) for value in present))
    return fmean(present)


def _verdicts(figure: Figure, measured: Measured, mutated: dict[str, Measured]) -> list[Json]:
    made = []
    for claim in figure.claims:
        names = (*claim.bands, *claim.shown)
        verdict: Json = {
            "claim": claim.claim,
            "holds": measured.holds(claim),
            "measured": {name: _short(measured.numbers[name]) for name in names},
            "paper": claim.paper,
            "bands": {name: str(band) for name, band in claim.bands.items()},
            "spread": {name: measured.spread(name) for name in names} if len(measured.each) > 1 else {},
            "mutation": claim.mutation,
        }
        if not verdict["holds"] and claim.reason:
            verdict["reason"] = claim.reason
        if claim.mutation in mutated:
            other = mutated[claim.mutation]
            verdict["holds_mutated"] = other.holds(claim)
            verdict["measured_mutated"] = {name: _short(other.numbers[name]) for name in names}
        made.append(verdict)
    return made


def _short(number: float | None) -> float | None:
    """Four digits are enough to read; claims are judged on all of them. JSON knows no infinity."""
    if number is None or not math.isfinite(number):
        return None
    return number if isinstance(number, int) else float(f"{number:.4g}")


def _slug(mutation: str) -> str:
    return re.sub(r"\W+", "-", mutation.lower()).strip("-")


def plain(value: Any) -> Any:
    """numpy scalars and arrays become plain JSON values."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
