"""Which rows of a batch wait: decided once per epoch, whichever attempt of a site decides first.

Where the clock decides how much of a batch a site processes, two attempts of one batch would decide differently: a
sink that evaluates its results twice, a retried task, the same batch again after a crash. A sink is promised the same
results under the same epoch number, so the first decision about a partition group is written down, under a name only
one attempt can create, and everyone else follows it. Used by `fluxen.site.backlog`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fluxen.arrays import Json, Mask
from fluxen.errors import DamagedError
from fluxen.state.epoch import decision_directory
from fluxen.state.record import seal, unseal
from fluxen.state.routing import ranges
from fluxen.state.store import Store, checksum

VERSION = 1

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What waits of the partition groups in `groups`; rows of all others of these groups are processed."""

    groups: Spans
    waiting: Mapping[int, Spans] = field(default_factory=dict)
    """arrival epoch -> groups whose rows of that epoch wait on"""

    def to_json(self) -> Json:
        waiting = [[arrival, spans] for arrival, spans in sorted(self.waiting.items())]
        return {"version": VERSION, "groups": self.groups, "waiting": waiting}

    @staticmethod
    def from_json(data: Json) -> Decision:
        return Decision(
            groups=_spans(data["groups"]),
            waiting={int(arrival): _spans(spans) for arrival, spans in data["waiting"]},
        )


def _spans(data: list[list[int]]) -> Spans:
    return tuple((int(low), int(high)) for low, high in data)


def decide(store: Store, epoch: int, stage: int, owned: Mask, decision: Decision) -> Decision:
    """Write the decision of the site that owns these groups, or give back the one that was there first."""
    # named after the groups, not the site: after a restart with other sites it must not be taken for another's
    name = f"{decision_directory(epoch)}/{stage}-{checksum(repr(ranges(owned)).encode()):08x}.json"
    if store.create(name, seal(decision.to_json())):
        return decision
    return _read(store, name)


def decided(store: Store, epoch: int, stage: int) -> list[Decision]:
    """What attempts of this epoch have decided so far."""
    directory = decision_directory(epoch)
    names = [name for name in store.list(directory) if name.startswith(f"{stage}-") and name.endswith(".json")]
    return [_read(store, f"{directory}/{name}") for name in names]


def _read(store: Store, name: str) -> Decision:
    data = unseal(store.read(name), store.path(name))
    if data.get("version") != VERSION:
        raise DamagedError(f"{store.path(name)} has format version {data.get('version')}, this fluxen reads {VERSION}")
    return Decision.from_json(data)
