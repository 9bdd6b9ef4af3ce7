"""Ctrl-C as a wish, not an accident: the first one asks a query to stop at its next commit, the second one ends it.

Spark's own handler would cancel the batch under way, which would have to be repeated.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["asked_to_stop"]


@contextmanager
def asked_to_stop() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C, or by SIGTERM; the next one raises KeyboardInterrupt."""
    asked = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked  # signals are the main thread's
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
