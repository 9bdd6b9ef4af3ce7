"""Drawing without a display: what benchmarks and figures share."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

__all__ = ["pyplot", "save"]


def pyplot() -> Any:
    """matplotlib.pyplot on the Agg backend, imported when first drawn with."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def save(figure: Any, axes: Any, path: Path, *, title: str, xlabel: str, ylabel: str) -> None:
    """Label a plot of lines and write it."""
    axes.set_title(title)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot().close(figure)
