"""What the loop needs of a runtime: evaluate one epoch's stages and hand the results to the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from fluxen.control.advance import Seen
from fluxen.site.context import SiteContext

__all__ = ["EpochTask", "Evaluation", "Runtime"]

Rows = TypeVar("Rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTask(Generic[Rows]):
    """One epoch to evaluate."""

    number: int
    rows: Rows | None
    """what the sources brought; None for a flush epoch"""
    contexts: Sequence[SiteContext]
    """per stage: what its sites need to know"""
    combine: Sequence[bool]
    """per stage: whether rows of one key should be combined before they travel"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How an evaluation went."""

    finish: Callable[[int], None]
    """runs the sites of a stage, and of those that feed it, whose results nobody has read to the end"""
    close: Callable[[], None] = lambda: None
    """releases what was kept for `finish`"""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """where the time went, by phase"""


class Runtime(Protocol[Rows]):
    """Runs sites: as Spark tasks, or one after the other in this process."""

    def evaluate(self, task: EpochTask[Rows]) -> Evaluation:
        """Run all stages and give the last one's results to the sink under the epoch's number."""

    def delivering(self, epoch: int, sites: int) -> bool:
        """Whether the sink has some of so many sites' shares of an epoch that was not committed: then the epoch must be
        shared out as it was. Called once, before the first epoch of a run."""

    def seen(self, rows: Rows) -> Seen:
        """The latest event times of the sources' rows, where filters may have hidden them from the sites."""
