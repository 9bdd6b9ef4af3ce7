"""Epochs: what is committed after a micro-batch, and the log that holds them.

An epoch is one JSON file, `epochs/<number>.json`, created atomically and never changed. It names everything the next
micro-batch starts from: routing, segments, watermarks, the state of the policies. Segments are deleted once no kept
epoch refers to them. How one epoch leads to the next is decided in `fluxen.control.advance`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from fluxen.arrays import Json
from fluxen.errors import CheckpointError, DamagedError
from fluxen.state.claim import Claim
from fluxen.state.events import EVENTS, EventLog
from fluxen.state.history import GroupHistory
from fluxen.state.record import RECORDS, record_directory, seal, unseal
from fluxen.state.residence import Residence
from fluxen.state.routing import Routing
from fluxen.state.segment import SegmentRef
from fluxen.state.store import Store, missing
from fluxen.state.trees import Track, Trees

VERSION = 2
EPOCHS, SEGMENTS, IDENTITY = "epochs", "segments", "fluxen.json"
ASKED, UNIQUE_ID = "rescale.json", "id.json"
DECISIONS = "decisions"
"""What attempts of an epoch decided (`fluxen.state.decision`); unlike records, a restart still follows them."""
KEEP = 3
"""Epochs kept besides the newest, for inspection and for a task that still reads an older one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """One stateful stage of the query at the end of an epoch."""

    routing: Routing
    segments: tuple[SegmentRef, ...] = ()
    watermarks: tuple[int, ...] = ()
    """per input: the time below which state expires and windows are closed"""
    emitted: tuple[int, ...] = ()
    """per input: the watermark the last batch worked under; what it closed has left the state"""
    cleaning: tuple[int, ...] = ()
    """groups whose generations the next epoch joins with each other; they stay on disk, as one generation"""
    unspilling: tuple[int, ...] = ()
    """the same, but they become active"""
    history: GroupHistory | None = None
    """what each group has produced, and what of it is on disk; kept where memory is limited"""
    trees: Trees | None = None
    """join trees: which one each site runs and each group's state fits; None for other operators"""
    tracks: tuple[Track, ...] = ()
    """groups whose move by parallel track is under way"""
    buffer: tuple[SegmentRef, ...] = ()
    """rows that arrived and were not processed yet (`fluxen.site.backlog`)"""
    frontier: tuple[int, ...] = ()
    """per input: the watermark as it would be if no row waited in the buffer; empty if none does"""
    waiting: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(epoch, watermarks under which its rows count as late) of every epoch with rows in the buffer"""
    quiet: tuple[float, ...] = ()
    """per input: seconds without a row while the query ran; empty where no input may go idle"""

    arriving: tuple[tuple[int, int], ...] = ()
    """(group, receiver) of moves whose state is being copied ahead (`fluxen.control.moves.copying`)"""
    residence: Residence | None = None
    """which groups are on disk, where memory is limited and groups take turns"""

    @property
    def late_before(self) -> tuple[int, ...]:
        """Per input: rows of the next batch that are older are late. Waiting rows hold back only the watermark."""
        return self.frontier or self.watermarks

    def to_json(self) -> Json:
        return {
            "routing": self.routing.to_json(),
            "segments": [ref.to_json() for ref in self.segments],
            "watermarks": self.watermarks,
            "emitted": self.emitted,
            "cleaning": self.cleaning,
            "unspilling": self.unspilling,
            "history": None if self.history is None else self.history.to_json(),
            "trees": None if self.trees is None else self.trees.to_json(),
            "tracks": [track.to_json() for track in self.tracks],
            "buffer": [ref.to_json() for ref in self.buffer],
            "frontier": self.frontier,
            "waiting": self.waiting,
            "quiet": self.quiet,
            "arriving": self.arriving,
            "residence": None if self.residence is None else self.residence.to_json(),
        }

    @staticmethod
    def from_json(data: Json) -> StageState:
        return StageState(
            routing=Routing.from_json(data["routing"]),
            segments=tuple(SegmentRef.from_json(ref) for ref in data["segments"]),
            watermarks=tuple(data["watermarks"]),
            emitted=tuple(data["emitted"]),
            cleaning=tuple(data["cleaning"]),
            unspilling=tuple(data["unspilling"]),
            history=None if data["history"] is None else GroupHistory.from_json(data["history"]),
            trees=None if data["trees"] is None else Trees.from_json(data["trees"]),
            tracks=tuple(Track.from_json(track) for track in data["tracks"]),
            buffer=tuple(SegmentRef.from_json(ref) for ref in data["buffer"]),
            frontier=tuple(data["frontier"]),
            quiet=tuple(data["quiet"]),
            arriving=tuple((int(group), int(site)) for group, site in data["arriving"]),
            residence=None if data["residence"] is None else Residence.from_json(data["residence"]),
            waiting=tuple((int(epoch), tuple(late)) for epoch, late in data["waiting"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    number: int
    """-1 before anything was committed"""
    batch: int
    """the last Spark batch whose rows are in; -1 before the first"""
    stages: tuple[StageState, ...]
    control: Json = field(default_factory=dict)
    """snapshot of policies and manager"""
    stats: Json = field(default_factory=dict)
    """what this epoch's sites reported, summed up: shown to people, not read by the engine"""

    def to_json(self) -> Json:
        return {
            "version": VERSION,
            "epoch": self.number,
            "batch": self.batch,
            "stages": [stage.to_json() for stage in self.stages],
            "control": self.control,
            "stats": self.stats,
        }

    @staticmethod
    def from_json(data: Json) -> Epoch:
        return Epoch(
            number=data["epoch"],
            batch=data["batch"],
            stages=tuple(StageState.from_json(stage) for stage in data["stages"]),
            control=data["control"],
            stats=data["stats"],
        )


class EpochLog:
    """The committed epochs of one checkpoint."""

    def __init__(self, store: Store, claim: Claim | None = None) -> None:
        self.store = store
        self.claim = claim
        """who commits; None where nobody else can, as in tests"""
        self._referenced: dict[int, set[str]] = {}
        self._asked = self._timed = False
        self._events = EventLog(store)

    def identify(self, identity: Json) -> None:
        """Claim the checkpoint for a query, or refuse: a checkpoint of another query, naming what differs."""
        claimed = {"version": VERSION, **identity}
        if not self.store.exists(IDENTITY) and all(self.store.list(name) for name in ("offsets", "commits")):
            raise CheckpointError(
                f"checkpoint {self.store.root} is one of Spark's own, whose state cannot be taken over; choose a new "
                "checkpoint location, and let the source begin at the offsets in the newest file under offsets/ "
                "(startingOffsets of Kafka, startingVersion of Delta), with the rows of a window before them"
            )
        if self.store.create(IDENTITY, seal(claimed)):
            return
        try:
            found = unseal(self.store.read(IDENTITY), self.store.path(IDENTITY))
        except DamagedError as error:
            raise DamagedError(f"{error}; restore it from a copy, or delete it: the query writes it again") from None
        if found.get("version") != VERSION:
            raise CheckpointError(
                f"checkpoint {self.store.root} has format version {found.get('version')}, this fluxen reads "
                f"{VERSION}; use the fluxen that wrote it, or choose a new checkpoint location"
            )
        differences = [
            f"{name} was {found.get(name)!r}, now {claimed.get(name)!r}"
            for name in sorted({*found, *claimed})
            if found.get(name) != claimed.get(name)
        ]
        if differences:
            raise CheckpointError(
                f"checkpoint {self.store.root} belongs to another query: {'; '.join(differences)}; "
                "run the query that made it, or choose a new checkpoint location"
            )

    def unique_id(self) -> str:
        """An id that no other checkpoint has, made once: another one at the same place has another."""
        self.store.create(UNIQUE_ID, seal({"id": str(uuid.uuid4())}))
        return str(unseal(self.store.read(UNIQUE_ID), self.store.path(UNIQUE_ID))["id"])

    def numbers(self) -> list[int]:
        names = self.store.list(EPOCHS)
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def load(self, number: int) -> Epoch:
        name = _name(number)
        try:
            data = unseal(self.store.read(name), self.store.path(name))
        except FileNotFoundError:
            raise DamagedError(missing(self.store.path(name))) from None
        except DamagedError as error:
            raise DamagedError(
                f"{error}; restore the file from a copy, or delete it to continue from the epoch before it"
            ) from None
        if data.get("version") != VERSION:
            raise CheckpointError(
                f"{self.store.path(name)} has epoch format version {data.get('version')}, this fluxen reads {VERSION}"
            )
        return Epoch.from_json(data)

    def latest(self) -> Epoch | None:
        numbers = self.numbers()
        if not numbers:
            return None
        for number in numbers:
            self._referenced.setdefault(number, _names(self.load(number)))
        return self.load(numbers[-1])

    def commit(self, epoch: Epoch) -> None:
        """Make `epoch` the newest one: all or nothing, and only one can have this number."""
        if not self._create(_name(epoch.number), seal(epoch.to_json())):
            raise CheckpointError(
                f"epoch {epoch.number} of {self.store.root} was committed by another process; "
                "stop the other query that uses this checkpoint location"
            )
        self._referenced[epoch.number] = _names(epoch)
        self.store.delete(_intent(epoch.number))

    def intend(self, number: int, what: Json) -> None:
        """Note that epoch `number` is no Spark batch, so that a restart finishes the same thing first."""
        self._create(_intent(number), seal(what))

    def _create(self, name: str, data: bytes) -> bool:
        return self.store.create(name, data) if self.claim is None else self.claim.create(name, data)

    def intent(self, number: int) -> Json | None:
        name = _intent(number)
        try:
            return unseal(self.store.read(name), self.store.path(name))
        except FileNotFoundError:
            return None

    def moment(self, number: int, now: int) -> int:
        """The time of all rows of epoch `number`, in microseconds: that of its first attempt."""
        self._timed, moment = True, now
        if self._create(_time(number), seal({"moment": moment})):
            return moment
        return int(unseal(self.store.read(_time(number)), self.store.path(_time(number)))["moment"])

    def ask(self, sites: int | None) -> None:
        """Note that another number of sites was asked for, until an epoch holds the request; None once one does."""
        if sites is not None:
            self.store.replace(ASKED, seal({"sites": sites}))
        elif self._asked:
            self.store.delete(ASKED)
        self._asked = sites is not None

    def asked(self) -> int | None:
        if not self.store.exists(ASKED):
            return None
        self._asked = True
        try:
            return int(unseal(self.store.read(ASKED), self.store.path(ASKED))["sites"])
        except DamagedError:  # half a request, which a driver that died has left where files are not written at once
            return None

    def begun(self, number: int) -> bool:
        """Whether some attempt of an epoch that was not committed may have delivered results."""
        return bool(self.store.list(record_directory(number)) or self.store.list(decision_directory(number)))

    def collect(self, newest: int) -> None:
        """Forget epochs older than the kept ones, and delete what only they referred to."""
        expired = [number for number in self._referenced if number < newest - KEEP]
        if not expired:
            return
        candidates = set().union(*(self._referenced.pop(number) for number in expired))
        kept = set().union(*self._referenced.values())
        # epochs first: an epoch file must never refer to a segment that is gone
        for number in expired:
            self.store.delete(_name(number))
            if self._timed:
                self.store.delete(_time(number))
            self.store.delete_directory(record_directory(number))
            self.store.delete_directory(decision_directory(number))
        for name in candidates - kept:
            self.store.delete(name)

    def sweep(self, newest: int) -> int:
        """Delete segments and records that attempts left behind without ever being committed."""
        kept = set().union(*self._referenced.values()) if self._referenced else set()
        orphans = [
            f"{SEGMENTS}/{name}"
            for name in self.store.list(SEGMENTS)
            if f"{SEGMENTS}/{name}" not in kept and segment_epoch(name) <= newest
        ]
        for name in orphans:
            self.store.delete(name)
        if self.begun(newest + 1):
            # outlives the records: after the next crash as well, sites must know that there were attempts
            self.store.create(f"{decision_directory(newest + 1)}/begun", b"")
        self.store.delete_directory(record_directory(newest + 1))
        self._sweep_leftovers(newest)
        return len(orphans)

    def _sweep_leftovers(self, newest: int) -> None:
        """Files that crashes left half made, and directories of old epochs that a late attempt made again."""
        for directory in ("", EPOCHS, EVENTS):
            for name in self.store.list(directory):
                old = name.endswith((".intent", ".time")) and int(name.split(".")[0]) <= newest
                if name.endswith(".tmp") or old:
                    self.store.delete(f"{directory}/{name}" if directory else name)
        for directory in (RECORDS, DECISIONS):
            for name in self.store.directories(directory):
                if int(name) < newest - KEEP:
                    self.store.delete_directory(f"{directory}/{name}")

    def note(self, number: int, events: list[Json]) -> None:
        """Keep an epoch's adaptations beyond the life of its epoch file (`fluxen.state.events`)."""
        self._events.note(number, events)

    def events(self) -> list[Json]:
        return self._events.read()


def opened(checkpoint: str) -> Store:
    """The files of a checkpoint that is there, for those who only read it."""
    store = Store(checkpoint)
    if not store.exists(IDENTITY):
        raise CheckpointError(
            f"{checkpoint} is not the checkpoint of a fluxen query: there is no {IDENTITY} in it; "
            "give the directory that was the query's checkpointLocation"
        )
    return store


def segment_name(*, epoch: int, stage: int, site: int, side: int, attempt: str) -> str:
    return f"{SEGMENTS}/{epoch:010d}-{stage}-{site}-{side}-{attempt}.arrow"


def segment_epoch(name: str) -> int:
    return int(name.split("-", 1)[0])


def decision_directory(epoch: int) -> str:
    return f"{DECISIONS}/{epoch:010d}"


def _name(number: int) -> str:
    return f"{EPOCHS}/{number:010d}.json"


def _time(number: int) -> str:
    return f"{EPOCHS}/{number:010d}.time"


def _intent(number: int) -> str:
    return f"{EPOCHS}/{number:010d}.intent"


def _names(epoch: Epoch) -> set[str]:
    return {ref.name for stage in epoch.stages for ref in (*stage.segments, *stage.buffer)}
