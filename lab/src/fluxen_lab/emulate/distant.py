"""A checkpoint that is far away: every byte read from it takes its time, and each executor has its own copies.

On one machine a move costs nothing, because all executors read the same disk. Experiments and tests give a query a
`Distant` checkpoint (`distant`) to see what a move costs where it is a filesystem of the network. Writing takes no
longer than usual: a move reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fluxen.state.store import Store

__all__ = ["Distant", "distant"]


class Distant(Store):
    """A checkpoint on this machine's disk that behaves as if it were not.

    With `ahead` off nothing is copied before the switch of a move, for comparison.
    """

    __slots__ = ("ahead", "per_byte", "wait")

    def __init__(
        self,
        root: str,
        cache: str | None = None,
        *,
        per_byte: float,
        ahead: bool = True,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        if cache is None:
            super().__init__(root)
        else:
            super().__init__(root, cache)
        self.per_byte, self.ahead, self.wait = per_byte, ahead, wait
        self._fs = _Throttled(self._fs, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Distant, per_byte=self.per_byte, ahead=self.ahead, wait=self.wait), (self.root, self.cache)

    @property
    def local(self) -> bool:
        return False

    @property
    def shared(self) -> bool:
        return not self.ahead


class _Throttled:
    """A filesystem whose files take time to read."""

    def __init__(self, inner: Any, store: Distant) -> None:
        self._inner, self._store = inner, store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open_input_file(self, path: str) -> _Reader:
        return _Reader(self._inner.open_input_file(path), self._store)


class _Reader:
    def __init__(self, file: Any, store: Distant) -> None:
        self._file, self._store = file, store

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()

    def seek(self, to: int) -> None:
        self._file.seek(to)

    def read(self, size: int | None = None) -> bytes:
        data: bytes = self._file.read() if size is None else self._file.read(size)
        self._store.wait(len(data) * self._store.per_byte)
        return data


def distant(query: Any, bytes_per_second: float, *, ahead: bool = True) -> Any:
    """A query whose checkpoint is read at so many bytes per second by every task."""
    return replace(query, store=partial(Distant, per_byte=1 / bytes_per_second, ahead=ahead))
