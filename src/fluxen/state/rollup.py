"""A log that keeps the recent past as it was and the distant past coarser, within a fixed size.

Samples come in the order of their epochs and are kept in parts, files `<directory>/<level>-<first>-<last>` of samples
that follow each other. Level 0 has samples as they came. When a level holds more than its share, its oldest parts are
rolled up into one of the next level, `FACTOR` samples into one; of the last level the oldest part is deleted. A part is
never changed: the newest, to which samples are still added, is written anew under its new name.

What is a sample, and what several make together, says a `Codec` (`fluxen.state.statistics`). A crash in the middle
leaves parts that another one covers, which readers pass over and the next writer deletes. Parts that cannot be read
are passed over as well: a log of statistics is not worth failing for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fluxen.errors import DamagedError
from fluxen.state.store import Store

__all__ = ["Codec", "Part", "Rollup"]

FACTOR = 4
"""Samples that become one where they are rolled up."""
LEVELS = 10
"""4^10 epochs per sample at the end: years of them."""
SAMPLES = 16
"""Samples of a part of level 0."""
PARTS = 32
"""Parts of a level, however small."""
PIECES = 16
"""Parts that fit into a level's share of the size, at least."""

Sample = TypeVar("Sample")


class Codec(Protocol[Sample]):
    """What a sample is."""

    suffix: str

    def span(self, sample: Sample) -> tuple[int, int]:
        """The first and the last epoch it stands for."""

    def merged(self, samples: Sequence[Sample]) -> Sample:
        """Samples that follow each other as one."""

    def encoded(self, samples: Sequence[Sample]) -> bytes: ...

    def decoded(self, data: bytes, path: str) -> list[Sample]:
        """The inverse; a `DamagedError` that names the path if it cannot be."""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A file of samples, as its name tells."""

    first: int
    last: int
    level: int
    name: str

    @staticmethod
    def of(name: str) -> Part | None:
        """The part of this file name; None for a file that is none."""
        numbers = name.split(".")[0].split("-")
        if name.endswith(".tmp") or len(numbers) != 3 or not all(number.isdigit() for number in numbers):
            return None
        level, first, last = map(int, numbers)
        return Part(first, last, level, name)


class Rollup(Generic[Sample]):
    """One such log: `limit` bytes at most, and the part that is still being added to."""

    def __init__(self, store: Store, directory: str, codec: Codec[Sample], limit: int) -> None:
        self.store, self.directory, self.codec = store, directory, codec
        self.share = limit // (LEVELS + 1)  # the last one is for the part that grows and for rounding
        self._sizes: dict[Part, int] | None = None  # closed parts; None before they have been looked for
        self._head: list[Sample] = []
        self._written: Part | None = None  # the file that holds the start of `_head`
        self._weight = 0  # bytes of one of the newest samples

    # ---- writing

    def add(self, samples: Sequence[Sample]) -> None:
        """Write samples that follow what is there."""
        if not samples:
            return
        if self._sizes is None:
            self._open(self.codec.span(samples[0])[0])
        for sample in samples:
            self._head.append(sample)
            if len(self._head) >= SAMPLES or len(self._head) * self._weight > self.share // PIECES:
                self._write_head()
        if self._head:
            self._write_head()

    def _open(self, epoch: int) -> None:
        """Go on where an earlier run ended; what it told of epochs that are done again is forgotten."""
        current = self.parts()
        for part in self._listed():
            if part not in current or part.last >= epoch:
                self._delete(part)
        for name in self.store.list(self.directory):
            if name.endswith(".tmp"):
                self.store.delete(f"{self.directory}/{name}")
        parts = [part for part in current if part.last < epoch]
        self._sizes = {part: self.store.size(self._path(part)) for part in parts}
        if parts and parts[-1].level == 0 and self._sizes[parts[-1]] <= self.share // PIECES:
            head = self.samples(parts[-1])
            if 0 < len(head) < SAMPLES:
                self._written, self._head = parts[-1], head
                del self._sizes[parts[-1]]

    def _write_head(self) -> None:
        part, size = self._write(0, self._head)
        self._weight = size // len(self._head)
        if self._written is not None and self._written != part:
            self._delete(self._written)
        self._written = part
        if len(self._head) >= SAMPLES or size > self.share // PIECES:
            self._close(part, size)
            self._settle()

    def _close(self, part: Part, size: int) -> None:
        assert self._sizes is not None
        self._sizes[part] = size
        self._written, self._head = None, []

    def _settle(self) -> None:
        """Roll up until every level is within its share."""
        assert self._sizes is not None
        for level in range(LEVELS):
            while parts := self._over(level):
                if level + 1 < LEVELS:
                    samples = [sample for part in parts for sample in self.samples(part)]
                    groups = [samples[at : at + FACTOR] for at in range(0, len(samples), FACTOR)]
                    if groups:
                        made, size = self._write(level + 1, [self.codec.merged(group) for group in groups])
                        self._sizes[made] = size
                for part in parts if level + 1 < LEVELS else parts[:1]:
                    self._delete(part)
                    del self._sizes[part]

    def _over(self, level: int) -> list[Part]:
        """The oldest parts of a level that holds more than its share; empty if it does not."""
        assert self._sizes is not None
        mine = sorted(part for part in self._sizes if part.level == level)
        over = len(mine) > PARTS or sum(self._sizes[part] for part in mine) > self.share
        return mine[:FACTOR] if over else []

    def _write(self, level: int, samples: Sequence[Sample]) -> tuple[Part, int]:
        first, last = self.codec.span(samples[0])[0], self.codec.span(samples[-1])[1]
        name = f"{level:02d}-{first:010d}-{last:010d}.{self.codec.suffix}"
        data = self.codec.encoded(samples)
        self.store.replace(f"{self.directory}/{name}", data)
        return Part(first, last, level, name), len(data)

    def _delete(self, part: Part) -> None:
        self.store.delete(self._path(part))

    # ---- reading

    def parts(self) -> list[Part]:
        """The parts that count, oldest first."""
        found, reached = [], -1
        for part in sorted(self._listed(), key=lambda part: (part.first, -part.last, -part.level)):
            if part.last > reached:  # otherwise an earlier one has its samples, coarser or among more
                found.append(part)
                reached = part.last
        return found

    def samples(self, part: Part) -> list[Sample]:
        """What a part holds; nothing if it cannot be read."""
        try:
            return self.codec.decoded(self.store.read(self._path(part)), self.store.path(self._path(part)))
        except (DamagedError, FileNotFoundError):
            return []

    def _listed(self) -> list[Part]:
        return sorted(part for name in self.store.list(self.directory) if (part := Part.of(name)) is not None)

    def _path(self, part: Part) -> str:
        return f"{self.directory}/{part.name}"
