"""What is sampled every few batches of a soak run, and how: nothing here relies on the engine's own reports."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean

from fluxen.state import events as event_log
from fluxen.state import rollup
from fluxen.state.store import Store

__all__ = ["COLUMNS", "Sample", "Size", "checkpoint_size", "compress", "fill", "load", "resident_mb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A checkpoint's files and bytes, its newest epoch file's bytes, and how many events its log holds; the log's files
    are not among the others: how many they are, and how large, goes up and down with those entries."""

    files: float
    bytes: float
    epoch: float
    events: float

    @staticmethod
    def mean(sizes: Sequence[Size]) -> Size:
        """Files are merged and logs rolled up every few batches: one look at such a sawtooth says little."""
        return Size(**{field.name: fmean(getattr(size, field.name) for size in sizes) for field in fields(Size)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look. Sizes are those of the checkpoint without Spark's own logs, the mean over all batches since the look
    before; memory is resident megabytes; a batch's time is that of the processors, as `pace` corrects it."""

    batch: int
    files: float
    disk_kb: float
    epoch_kb: float
    events: float
    driver_mb: float
    workers_mb: float
    batch_ms: float

    @staticmethod
    def of(*, batch: int, size: Size, driver_mb: float, workers_mb: float, batch_ms: float) -> Sample:
        return Sample(
            batch=batch,
            files=size.files,
            disk_kb=size.bytes / 1e3,
            epoch_kb=size.epoch / 1e3,
            events=size.events,
            driver_mb=driver_mb,
            workers_mb=workers_mb,
            batch_ms=batch_ms,
        )

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


COLUMNS = tuple(field.name for field in fields(Sample) if field.name != "batch")


def compress() -> None:
    """Shorten the logs as the month is shortened: so few batches would not fill them otherwise."""
    event_log.SMALL, event_log.ROLLED, event_log.MOST = 1, 2, 64
    rollup.SAMPLES, rollup.PARTS, rollup.LEVELS = 2, 4, 2


def fill(checkpoint: Path) -> None:
    """Fill the log of adaptations, as a query does that has run for long: some adapt so rarely that theirs would still
    be filling up. What counts is whether it outgrows its bounds."""
    log = event_log.EventLog(Store(str(checkpoint)))
    for epoch in range(event_log.MOST + 2 * event_log.ROLLED):
        log.note(epoch, [{"id": -epoch, "epoch": epoch, "when": 0.0, "kind": "none", "why": "before the soak " * 16}])


def load(path: Path) -> list[Sample]:
    return [Sample(**json.loads(line)) for line in path.read_text().splitlines()]


def checkpoint_size(root: Path) -> Size:
    """What is below a checkpoint, Spark's own logs aside."""
    files, total, events, newest = 0, 0, 0, (-1.0, 0)
    for directory, below, names in os.walk(root):
        if Path(directory) == root:
            below[:] = [name for name in below if name != "spark"]
        part = os.path.relpath(directory, root).split(os.sep)[0]
        for name in names:
            try:
                size = os.stat(os.path.join(directory, name)).st_size
            except FileNotFoundError:
                continue
            if part != "events":
                files += 1
                total += size
            events += _entries(Path(directory, name)) if part == "events" and name.endswith(".json") else 0
            if part == "epochs" and name.endswith(".json"):
                newest = max(newest, (float(name[:-5].split("-")[0]), size))
    return Size(files=files, bytes=total, epoch=newest[1], events=events)


def _entries(path: Path) -> int:
    """Events in one file of the log; none if it has been rolled up meanwhile."""
    try:
        return len(json.loads(path.read_text().splitlines()[0])["events"])
    except FileNotFoundError:
        return 0


def resident_mb(pid: int) -> float:
    pages = int((Path("/proc") / str(pid) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
