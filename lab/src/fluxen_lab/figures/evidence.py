"""The page of evidence: every figure, its claims, what was measured and whether they can fail; docs/evidence.md.

Made from the results that `fluxen_lab.figures.reproduce` leaves in a directory, and from nothing else: a figure without
one, or with one whose claims or bands were others, is listed as not measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fluxen_lab.figures.claim import Claim
from fluxen_lab.figures.figure import Figure, figures

__all__ = ["page"]

INTRODUCTION = """# Evidence

What the papers' figures claim and what came out here. `make figures` measures those that need no Spark,
`make figures-spark` the others; both write this page, and nothing on it is written by hand. A claim holds if its
numbers, averaged over the seeds, lie in the bands that the code states (what is exact must hold with every seed).
Then the figure runs again without what the claim is about, and the claim must fail: one that *cannot fail* says
nothing. Claims that do not hold stay, with the reason as far as it was measured. The same for one figure:
`fluxen figure flux/6 --mutate`. [The papers, mapped to code](papers.md) leads to the pages that explain the figures.

**In process** is the real code without an engine around it, **simulator** the real policies on a simulated cluster,
**Spark** the whole product on a Spark session of this machine."""
PAPERS = {"flux": "Flux", "gedik": "Gedik", "liu05": "Liu-05", "liu07": "Liu-07", "zhu": "Zhu"}


def page(results: Path) -> str:
    """The page as Markdown; pictures are linked from a directory beside it, named as `results` is."""
    found = {name: (figure, _result(figure, results)) for name, figure in figures().items()}
    parts = [INTRODUCTION, "\n".join(_summary(found))]
    for paper, title in PAPERS.items():
        parts.append(f"## {title}")
        for name, (figure, result) in found.items():
            if name.startswith(f"{paper}/"):
                parts += _figure(figure, result, results.name)
    return "\n\n".join(parts) + "\n"


def _result(figure: Figure, results: Path) -> dict[str, Any] | None:
    """What was measured, if it was measured in full and for these claims with these bands."""
    path = results / f"{figure.name.replace('/', '-')}.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    judged = [(claim["claim"], claim["bands"], claim["mutation"]) for claim in result["claims"]]
    return result if not result["params"] and judged == [_judged(claim) for claim in figure.claims] else None


def _judged(claim: Claim) -> tuple[str, dict[str, str], str]:
    return claim.claim, {name: str(band) for name, band in claim.bands.items()}, claim.mutation


def _summary(found: dict[str, tuple[Figure, dict[str, Any] | None]]) -> Iterator[str]:
    yield "| figure | runs on | emulated | claims that hold | that do not | that cannot fail |"
    yield "|---|---|---|---|---|---|"
    for name, (figure, result) in found.items():
        where = f"| {name} | {figure.place} | {_cell(figure.emulated or 'nothing')} |"
        if result is None:
            yield f"{where} not measured | | |"
            continue
        claims = result["claims"]
        holding = [claim for claim in claims if claim["holds"]]
        surviving = [claim for claim in holding if claim.get("holds_mutated")]
        unknown = "" if result["mutated"] else "not measured"
        yield f"{where} {len(holding)} | {len(claims) - len(holding)} | {unknown or len(surviving)} |"


def _figure(figure: Figure, result: dict[str, Any] | None, directory: str) -> Iterator[str]:
    yield f"### {figure.name}: {figure.title}"
    emulated = f"; emulated: {figure.emulated}" if figure.emulated else ", real work"
    if result is None:
        yield f"Runs on: {figure.place}{emulated}. **Not measured.**"
    else:
        machine = result["machine"]
        yield (
            f"Ran on: {figure.place}{emulated}. {result['seeds']} seed{'s' * (result['seeds'] > 1)}, "
            f"{result['seconds']:.0f} s, {result['measured_on']}, commit {result['commit'] or 'unknown'}, "
            f"{machine['cores']} cores, {machine['memory_gb']} GB, Python {machine['python']}."
        )
    lines = [
        "| claim | paper | measured (band; least to greatest seed) | holds | fails when |",
        "|---|---|---|---|---|",
    ]
    for number, claim in enumerate(figure.claims):
        lines.append(_row(claim, None if result is None else result["claims"][number]))
    yield "\n".join(lines)
    if result is not None:
        yield f"![{figure.name}]({directory}/{result['png']})"


def _row(claim: Claim, verdict: dict[str, Any] | None) -> str:
    if verdict is None:
        bands = "; ".join(f"{name} ({band})" for name, band in claim.bands.items())
        cells = [claim.claim, str(claim.paper), f"not measured: {bands}", "not measured", claim.mutation]
    else:
        measured = "; ".join(_number(name, verdict) for name in verdict["measured"])
        holds = "yes" if verdict["holds"] else f"**no**: {verdict.get('reason', 'why was not found out')}"
        cells = [claim.claim, str(claim.paper), measured, holds, _fails(verdict)]
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _number(name: str, verdict: dict[str, Any]) -> str:
    told = [verdict["bands"][name]] if name in verdict["bands"] else []
    least, greatest = verdict["spread"].get(name, (None, None))
    if least != greatest:
        told.append(f"{least:g} to {greatest:g}")
    value = verdict["measured"][name]
    return f"{name} {'none' if value is None else f'{value:g}'}" + (f" ({'; '.join(told)})" if told else "")


def _fails(verdict: dict[str, Any]) -> str:
    if "holds_mutated" not in verdict:
        return f"{verdict['mutation']}: not measured"
    if verdict["holds"] and verdict["holds_mutated"]:
        return f"{verdict['mutation']}: holds all the same, **cannot fail**"
    numbers = verdict["measured_mutated"]
    decided = [f"{name} {'none' if numbers[name] is None else f'{numbers[name]:g}'}" for name in verdict["bands"]]
    return f"{verdict['mutation']}: {', '.join(decided)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
