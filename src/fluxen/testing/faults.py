"""Crashes on demand: a store whose process dies at a chosen file operation."""

from __future__ import annotations

from collections.abc import Iterable

from fluxen.state.store import Store

__all__ = ["FaultyStore", "SimulatedCrash"]


class SimulatedCrash(BaseException):
    """The process died here. Not an Exception: nothing may catch it and carry on."""


class FaultyStore(Store):
    """A store whose process dies at the n-th file operation, a write leaving half a file behind."""

    __slots__ = ("countdown",)

    def __init__(self, root: str, countdown: int | None = None) -> None:
        super().__init__(root)
        self.countdown = countdown

    def _tick(self) -> bool:
        if self.countdown is None:
            return False
        self.countdown -= 1
        return self.countdown < 0

    def write(self, name: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        if self._tick():
            whole = data if isinstance(data, bytes) else b"".join(data)
            self._write(name, [whole[: len(whole) // 2]])
            raise SimulatedCrash(f"while writing {name}")
        super().write(name, data)

    def create(self, name: str, data: bytes, via: str | None = None) -> bool:
        made = super().create(name, data, via)
        if self._tick():
            raise SimulatedCrash(f"after creating {name}")
        return made

    def delete(self, name: str) -> None:
        if self._tick():
            raise SimulatedCrash(f"before deleting {name}")
        super().delete(name)
