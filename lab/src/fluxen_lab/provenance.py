"""What a measurement is of: the machine, the commit, and a fingerprint of the code that ran."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fluxen

__all__ = ["code", "commit", "machine"]

_LAB = Path(__file__).parent


def machine() -> dict[str, Any]:
    """Cores, memory and the versions that matter."""
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("pyspark", "pyarrow", "numpy", "duckdb", "pandas")},
    }


@cache
def code() -> str:
    """Equal for equal sources of the product and the laboratory, whatever was committed."""
    digest = hashlib.sha256()
    for root in (Path(fluxen.__file__).parent, _LAB):
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def commit() -> str | None:
    """The commit that is checked out, marked if sources differ from it; None if there is no checkout."""
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:  # a checkout, but of something else
        return None
    head = _git("rev-parse", "--short=12", "HEAD")
    return f"{head}, changed" if _git("status", "--porcelain", "--", ":(top)src", ":(top)lab/src") else head


def _git(*words: str) -> str | None:
    try:
        asked = ["git", "-C", str(_LAB), *words]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
