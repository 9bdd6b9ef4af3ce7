"""`python -m fluxen_lab.benchmarks.plots adapt.json adapt.png`: what `fluxen bench adapt --json` has printed, drawn."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fluxen_lab.plotting import pyplot

__all__ = ["draw"]


def draw(parts: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel per scenario: every variant's median, as a share of Static's, and its spread."""
    figure, axes = pyplot().subplots(1, len(parts), figsize=(2.3 * len(parts), 3.2), sharey=True)
    for panel, part in zip(axes, parts):
        medians = {"static": part["static"], **part["singles"], "auto": part["auto"]}
        for place, (name, rate_of) in enumerate(medians.items()):
            low, high = part["spread"][name]
            color = {"static": "0.6", "auto": "tab:red"}.get(name, "tab:blue")
            panel.bar(place, rate_of / part["static"], color=color, width=0.7)
            panel.plot([place, place], [low / part["static"], high / part["static"]], color="black", linewidth=1)
        panel.set_xticks(range(len(medians)), list(medians), rotation=60, ha="right", fontsize=8)
        panel.set_title(part["name"], fontsize=9)
        panel.axhline(1.0, color="black", linewidth=0.5)
    axes[0].set_ylabel("rows/s, static = 1")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot().close(figure)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text())["parts"], Path(sys.argv[2]))
