"""A site is a function: pieces find what those before them left, and nothing is changed in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

import fluxen as fx
import fluxen.testing as ft
from fluxen.operators.base import Results, SiteInput
from fluxen.operators.wrapped import Wrapped
from fluxen.site.context import SiteContext, SkewBuffer
from fluxen.site.task import run_site
from fluxen.state.record import SiteRecord, read_records

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
STAGE = ft.aggregate(SCHEMA, "k", "ts", window="10 microseconds", n=fx.count())
GIVEN: list[SiteInput] = []


@dataclass(frozen=True, kw_only=True)
class Watched(Wrapped):
    """Remembers what it was given."""

    def process(self, given: SiteInput) -> Results:
        GIVEN.append(given)
        return (yield from super().process(given))


def run(directory: Any, buffer: SkewBuffer | None) -> SiteRecord:
    """The third batch of a query whose second one has moved the watermark to 25."""
    query = ft.LocalEngine([STAGE], str(directory), sites=1, partitions=16)
    keys = list(range(40))
    for number, time in enumerate((3, 25)):
        query.step(number, [pa.table({"k": keys, "ts": [time] * 40, "v": keys}, SCHEMA)])
    context = SiteContext(
        store=query.store,
        epoch=2,
        stage=0,
        operator=Watched(operator=STAGE.stage.operator),
        before=query.epoch.stages[0],
        buffer=buffer,
    )
    rows = STAGE.encode(0, pa.table({"k": keys, "ts": [28] * 40, "v": keys}, SCHEMA))
    results = list(run_site(context, lambda: (0, [rows]), "a"))
    assert sum(table.num_rows for table in results) == 40  # the first window closes once
    return read_records(query.store, 2)[0, 0]


def test_each_piece_finds_what_those_before_it_have_left(tmp_path):
    GIVEN.clear()
    pieces = run(tmp_path / "pieces", SkewBuffer(seconds=1e9, bytes=1 << 20, piece_rows=1))
    first, *others = GIVEN
    assert len(others) >= 3
    stored = len(first.runs[0])
    assert first.emitted < first.watermarks
    for number, given in enumerate(others, start=1):
        assert len(given.runs[0]) == stored + number
        assert given.emitted == given.watermarks
    whole = run(tmp_path / "whole", None)
    for record in (pieces, whole):
        assert record.rows_out == 40
        assert record.sides[0].rows_in == record.sides[0].distinct == 40
    assert replace(pieces, added=[], seconds={}, consumed=[]) == replace(whole, added=[], seconds={}, consumed=[])
