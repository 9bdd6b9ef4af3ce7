"""Site records: what one site says about one micro-batch, written last, so that its presence means "done".

A site writes `records/<epoch>/<stage>-<site>-<attempt>.json`. Attempts of one site compute the same thing from the
same epoch, so the coordinator may take any of them (`fluxen.control.advance`). An attempt's name starts with the
token of the run it belongs to: a task that outlives its driver may still write, under another routing than the next
run's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from fluxen.arrays import Json
from fluxen.errors import DamagedError
from fluxen.state.segment import SegmentRef
from fluxen.state.store import Store, checksum

RECORDS = "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideStats:
    """One side of the operator at one site in one batch."""

    rows_in: int = 0
    distinct: int = 0
    """rows left when those of one key are combined; 0 where the operator does not combine"""
    late: int = 0
    max_time: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    waiting_rows: int = 0
    """rows in the skew buffer after the batch"""
    waiting_bytes: int = 0
    waiting_since: int | None = None
    """the oldest event time among them"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """Columns over the partition groups a site touched or holds state of."""

    group: list[int] = field(default_factory=list)
    rows_in: list[int] = field(default_factory=list)
    """rows of the source that were processed: what people are shown"""
    rows_out: list[int] = field(default_factory=list)
    worked: list[int] = field(default_factory=list)
    """the same rows as the operator saw them: those of one key may have been combined before they travelled"""
    arrived: list[int] = field(default_factory=list)
    """rows that came with this batch, as they came, whether or not they wait; empty where nobody needs it"""
    bytes: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    """place among the site's own groups by productivity, 0 for the most productive; empty where nobody needs it"""
    backlog: list[int] = field(default_factory=list)
    """rows that wait in the skew buffer"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyKeys:
    """Columns over the keys with most rows of the source among those that came to a site in one batch."""

    key: list[int] = field(default_factory=list)
    """key hashes"""
    rows: list[int] = field(default_factory=list)
    """rows of the source: the key's true frequency"""
    arrived: list[int] = field(default_factory=list)
    """rows as they came to the site: what the key costs it"""
    bytes: list[int] = field(default_factory=list)
    """state in memory: the key's rows times the mean row of each file, as for groups"""
    inputs: list[list[int]] = field(default_factory=list)
    """per key, `rows` by input; empty where keys cannot be dealt over several groups"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRecord:
    """What one site says about one micro-batch. `fluxen.control.stats` sums records up for the policies."""

    epoch: int
    stage: int
    site: int
    added: list[SegmentRef] = field(default_factory=list)
    consumed: list[tuple[str, tuple[tuple[int, int], ...]]] = field(default_factory=list)
    """segments whose rows of these groups now live in one of `added` (or in none, when nothing was left)"""
    sides: list[SideStats] = field(default_factory=list)
    groups: GroupStats = field(default_factory=GroupStats)
    heavy: HeavyKeys = field(default_factory=HeavyKeys)
    """input of the partitioning functions; empty where there is none"""
    rows_out: int = 0
    rows_owed: int = 0
    """how many of `rows_out` generations on disk owed"""
    swapped_bytes: int = 0
    """state that came back from disk for this batch"""
    ahead_left: int = 0
    """bytes still to be copied of the groups that are about to come to this site"""
    delays: list[tuple[int, int]] = field(default_factory=list)
    """(epochs waited, rows) of the rows that were processed"""
    seconds: dict[str, float] = field(default_factory=dict)
    """where the time went: wait (for input), operator, emit (waiting on the consumer), write, merge"""
    host: str = ""
    executor: str = ""
    observed: Json = field(default_factory=dict)
    """what the operator saw, for the planner"""

    @property
    def busy_seconds(self) -> float:
        """Time the site worked, without waiting for rows or for the reader of its results."""
        return sum(value for name, value in self.seconds.items() if name not in ("wait", "emit", "ahead"))

    def to_json(self) -> Json:
        return {
            "epoch": self.epoch,
            "stage": self.stage,
            "site": self.site,
            "added": [ref.to_json() for ref in self.added],
            "consumed": self.consumed,
            "sides": [{name: getattr(side, name) for name in SideStats.__slots__} for side in self.sides],
            "groups": {name: getattr(self.groups, name) for name in GroupStats.__slots__},
            "heavy": {name: getattr(self.heavy, name) for name in HeavyKeys.__slots__},
            "rows_out": self.rows_out,
            "rows_owed": self.rows_owed,
            "swapped_bytes": self.swapped_bytes,
            "ahead_left": self.ahead_left,
            "delays": self.delays,
            "seconds": self.seconds,
            "host": self.host,
            "executor": self.executor,
            "observed": self.observed,
        }

    @staticmethod
    def from_json(data: Json) -> SiteRecord:
        return SiteRecord(
            **{
                **data,
                "added": [SegmentRef.from_json(ref) for ref in data["added"]],
                "consumed": [(name, tuple((a, b) for a, b in live)) for name, live in data["consumed"]],
                "sides": [SideStats(**side) for side in data["sides"]],
                "groups": GroupStats(**data["groups"]),
                "heavy": HeavyKeys(**data["heavy"]),
                "delays": [(waited, n) for waited, n in data["delays"]],
            }
        )


def seal(data: Json) -> bytes:
    """JSON followed by a line with its checksum."""
    body = json.dumps(data, separators=(",", ":")).encode()
    return body + b"\n%08x\n" % checksum(body)


def unseal(raw: bytes, path: str) -> Json:
    """The JSON of a sealed file, or a `DamagedError`."""
    body, _, tail = raw.rstrip(b"\n").rpartition(b"\n")
    if not body or tail != b"%08x" % checksum(body):
        raise DamagedError(f"{path} is damaged (its checksum does not match)")
    sealed: Json = json.loads(body)
    return sealed


def record_directory(epoch: int) -> str:
    return f"{RECORDS}/{epoch:010d}"


def write_record(store: Store, record: SiteRecord, attempt: str) -> None:
    name = f"{record_directory(record.epoch)}/{record.stage}-{record.site}-{attempt}.json"
    store.write(name, seal(record.to_json()))


def read_records(store: Store, epoch: int, token: str = "") -> dict[tuple[int, int], SiteRecord]:
    """One complete record of this run per (stage, site); attempts that died while writing are passed over."""
    found: dict[tuple[int, int], SiteRecord] = {}
    for name in store.list(record_directory(epoch)):
        if not name.split("-", 2)[-1].startswith(token):
            continue
        path = f"{record_directory(epoch)}/{name}"
        try:
            record = SiteRecord.from_json(unseal(store.read(path), path))
        except DamagedError:
            continue
        found.setdefault((record.stage, record.site), record)
    return found


def missing_sites(
    records: dict[tuple[int, int], SiteRecord], expected: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    return [key for key in expected if key not in records]
