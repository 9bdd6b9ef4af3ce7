"""Workers that give memory back: what a batch needed beside its state must not stay with the process.

Arrow's own allocator keeps freed memory for the next batch, and so does glibc once it has seen large blocks come and
go. Both are right where memory is plenty. The workers of a query with a limit are started with other settings, and
return what is left of small blocks after each batch.
"""

from __future__ import annotations

import ctypes
from functools import cache

from pyspark import SparkContext

_LARGE = str(1 << 20)
_LEAN = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # set by hand, the threshold beyond which a block is the system's no longer grows with the blocks that are freed
    "MALLOC_MMAP_THRESHOLD_": _LARGE,
    "MALLOC_TRIM_THRESHOLD_": _LARGE,
    "MALLOC_ARENA_MAX": "1",
}


def lean(context: SparkContext) -> None:
    """Python workers of this context keep little of what they free, unless the user has set them otherwise.

    Spark starts a worker with the environment its task asks for, so workers that run already are left alone.
    """
    for name, value in _LEAN.items():
        context.environment.setdefault(name, value)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is one that can be told to trim."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") else None


def trim() -> None:
    """Give back what is free at the end of a batch."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)
