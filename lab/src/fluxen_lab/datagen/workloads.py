"""The sizes of every benchmark, and how a smoke run shrinks them.

streams.py makes the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fluxen_lab.datagen.streams import StreamSpec, write_stream

__all__ = [
    "AGGREGATE",
    "BACKLOG",
    "FIXED",
    "GROWTH_JOIN",
    "GROWTH_ROWS",
    "KAFKA",
    "OVERFLOW",
    "QUERY_ROWS",
    "QUERY_THREE",
    "QUERY_THREE_LARGE",
    "QUERY_TWO",
    "QUERY_TWO_LARGE",
    "RESIDENT",
    "SKEW",
    "W1",
    "W2",
    "WIDE",
    "Workload",
]

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Streams that arrive together, one file each per micro-batch.

    `bound_us` is the largest distance of b.ts and c.ts from a.ts in a join result, None for no bound.
    `shrink` says what follows the row count down in a smoke run, so that results per row stay as they are:
    the number of keys (uniform keys) or the span of event time (skewed keys under a short bound).
    """

    name: str
    streams: tuple[StreamSpec, ...]
    batches: int
    bound_us: int | None = None
    shrink: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(stream.rows for stream in self.streams)

    @property
    def batch_rows(self) -> int:
        return self.rows // self.batches

    def scaled(self, scale: float) -> Workload:
        """The same workload with `scale` times the rows, a whole number of rows per batch and at least ten."""
        return replace(self, streams=tuple(self._scaled_stream(stream, scale) for stream in self.streams))

    def _scaled_stream(self, stream: StreamSpec, scale: float) -> StreamSpec:
        rows = max(10, round(stream.rows * scale / self.batches)) * self.batches
        share = rows / stream.rows
        return replace(
            stream,
            rows=rows,
            keys=max(10, round(stream.keys * share)) if "keys" in self.shrink else stream.keys,
            span_us=max(rows, round(stream.span_us * share)) if "span" in self.shrink else stream.span_us,
        )

    def write(self, directory: Path) -> None:
        """Write one folder of files per stream."""
        for stream in self.streams:
            write_stream(stream, directory / stream.name, self.batches)


def _three(
    rows: int, keys: int, skew: float, span_us: int, *, seed: int, text: bool, width: int = 16
) -> tuple[StreamSpec, ...]:
    return tuple(
        StreamSpec(
            name=name, rows=rows, keys=keys, skew=skew, span_us=span_us, text=text, seed=seed + number, width=width
        )
        for number, name in enumerate("abc")
    )


AGGREGATE = Workload(
    name="aggregate",
    streams=(
        StreamSpec(name="rows", rows=5_000_000, keys=1_000_000, skew=1.0, span_us=1_000 * _SECOND, text=False, seed=11),
    ),
    batches=20,
    shrink=("keys",),
)
KAFKA = Workload(
    name="kafka",
    streams=(
        StreamSpec(name="rows", rows=2_000_000, keys=200_000, skew=1.0, span_us=1_000 * _SECOND, text=False, seed=81),
    ),
    batches=16,
    shrink=("keys",),
)
W1 = Workload(
    name="w1",
    streams=_three(1_000_000, 100_000, 0.0, 1_000 * _SECOND, seed=21, text=True),
    batches=20,
    bound_us=60 * _SECOND,
    shrink=("keys",),
)
# w1 four times as long, in files that a batch takes one or many of
BACKLOG = Workload(
    name="backlog",
    streams=_three(4_000_000, 100_000, 0.0, 4_000 * _SECOND, seed=151, text=True),
    batches=240,
    bound_us=60 * _SECOND,
    shrink=("keys",),
)
# ten times the window and the keys of w1: state that weighs more than what any process takes
WIDE = Workload(
    name="wide",
    streams=_three(2_000_000, 1_000_000, 0.0, 2_000 * _SECOND, seed=25, text=True),
    batches=40,
    bound_us=600 * _SECOND,
    shrink=("keys",),
)
W2 = Workload(
    name="w2",
    streams=_three(300_000, 100_000, 1.0, 1_000 * _SECOND, seed=31, text=True),
    batches=20,
    bound_us=_SECOND // 5,
    shrink=("span",),
)
# 1,000 rows a batch over three streams: what is left is the cost of having a batch at all
FIXED = Workload(
    name="fixed",
    streams=_three(40 * 334, 100_000, 0.0, 1_000 * _SECOND, seed=41, text=True),
    batches=40,
    bound_us=60 * _SECOND,
)
# a bound wider than the stream is long: nothing expires, the state is all the input, and native Spark can run it too
OVERFLOW = Workload(
    name="memory",
    streams=_three(15 * 30_000, 450_000, 0.0, 1_000 * _SECOND, seed=71, text=True),
    batches=15,
    bound_us=2_000 * _SECOND,
    shrink=("keys",),
)
# rows wide enough for a gigabyte of state in a minute, in batches of 14 MB
RESIDENT = Workload(
    name="resident",
    streams=_three(70 * 10_800, 1_500_000, 0.0, 1_000 * _SECOND, seed=91, text=True, width=400),
    batches=70,
    bound_us=2_000 * _SECOND,
    shrink=("keys",),
)
# Keys so many that a row meets about one other: what grows is the state, not the results.
GROWTH_JOIN = Workload(
    name="growth-join",
    streams=_three(125 * 20_000, 20_000_000, 0.0, 10_000 * _SECOND, seed=51, text=True),
    batches=125,
    shrink=("keys",),
)
GROWTH_ROWS = Workload(
    name="growth-rows",
    streams=(
        StreamSpec(
            name="rows",
            rows=125 * 60_000,
            keys=20_000_000,
            skew=0.0,
            span_us=10_000 * _SECOND,
            text=False,
            seed=61,
        ),
    ),
    batches=125,
    shrink=("keys",),
)
# as dense as w1, in batches of a size that lets every run of both engines end within half a minute
QUERY_TWO = Workload(
    name="query-two",
    streams=_three(12 * 50_000, 60_000, 0.0, 1_000 * _SECOND, seed=101, text=True)[:2],
    batches=12,
    bound_us=60 * _SECOND,
    shrink=("keys",),
)
QUERY_THREE = Workload(
    name="query-three",
    streams=_three(12 * 35_000, 42_000, 0.0, 1_000 * _SECOND, seed=111, text=True),
    batches=12,
    bound_us=60 * _SECOND,
    shrink=("keys",),
)
# six hundred thousand rows a batch, as a job has them that catches up: what is the same for every batch is little then
QUERY_TWO_LARGE = Workload(
    name="query-two-large",
    streams=_three(10 * 300_000, 300_000, 0.0, 1_000 * _SECOND, seed=131, text=True)[:2],
    batches=10,
    bound_us=60 * _SECOND,
    shrink=("keys",),
)
QUERY_THREE_LARGE = Workload(
    name="query-three-large",
    streams=_three(10 * 200_000, 200_000, 0.0, 1_000 * _SECOND, seed=141, text=True),
    batches=10,
    bound_us=60 * _SECOND,
    shrink=("keys",),
)
QUERY_ROWS = Workload(
    name="query-rows",
    streams=(
        StreamSpec(
            name="rows", rows=12 * 100_000, keys=50_000, skew=1.0, span_us=1_000 * _SECOND, text=False, seed=121
        ),
    ),
    batches=12,
    shrink=("keys",),
)
# few rows, each of which takes its time: what is measured is how they are shared out
SKEW = Workload(
    name="skew",
    streams=(
        StreamSpec(name="rows", rows=14 * 3_000, keys=20_000, skew=0.0, span_us=14 * _SECOND, text=False, seed=71),
    ),
    batches=14,
)
