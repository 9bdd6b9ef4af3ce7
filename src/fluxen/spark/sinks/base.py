"""What a sink is: a function of (results, epoch). An epoch may come twice after a crash, with the same results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from fluxen.errors import CheckpointError, ConfigError
from fluxen.state.claim import Claim

__all__ = ["FormatSink", "Sink", "SinkWords", "refuse_settings"]

Sink = Callable[[DataFrame, int], Any]


@dataclass(frozen=True, kw_only=True)
class SinkWords:
    """What the user said about where results go."""

    spark: SparkSession
    source: str
    options: dict[str, str]
    partition_by: list[str]
    name: str | None
    schema: st.StructType

    def option(self, name: str) -> str | None:
        """The value of an option, whatever case it was written in."""
        return next((value for key, value in self.options.items() if key.lower() == name), None)

    def without(self, *options: str) -> dict[str, str]:
        """The options but these."""
        return {key: value for key, value in self.options.items() if key.lower() not in options}

    def refuse(self, *but: str) -> None:
        """Raise for what the sink would ignore: partitionBy(), and all options but these."""
        refuse_settings(f"format({self.source!r})", self.without(*but), self.partition_by)


class FormatSink(ABC):
    """A sink that `format(...)` makes by name; a setting it would ignore is an error."""

    checkpoint_id, checkpoint = "", ""
    """of the checkpoint that numbers the epochs, and where it is; the run says it"""

    @classmethod
    @abstractmethod
    def of(cls, words: SinkWords) -> FormatSink:
        """The sink that these words mean."""

    @abstractmethod
    def __call__(self, results: DataFrame, epoch: int) -> None: ...

    def opened(self, claim: Claim, checkpoint_id: str) -> None:
        """A run begins, with this claim on a checkpoint that has an id of its own."""
        self.checkpoint_id, self.checkpoint = checkpoint_id, claim.store.root

    def refuse_older(self, who: str, newest: int, epoch: int) -> None:
        """Raise if more was delivered than the checkpoint knows of: the epochs to come would be taken for old ones."""
        if newest > epoch:
            raise CheckpointError(
                f"{who} has epoch {newest} of this query, but the checkpoint {self.checkpoint} goes on with epoch "
                f"{epoch}: it is older than what was delivered; restore a newer copy, or start with a new checkpoint "
                "location"
            )

    def delivering(self, epoch: int, sites: int) -> bool:
        """Whether an earlier run has delivered some sites' share of an epoch, so that the rest must be shared alike."""
        return False


def refuse_settings(
    what: str, options: Mapping[str, str], partition_by: Sequence[str], source: str | None = None
) -> None:
    """Raise for what a sink would ignore."""
    given = [f"option {key!r}" for key in options]
    given += ["partitionBy()"] if partition_by else []
    given += [f"format({source!r})"] if source is not None else []
    if given:
        raise ConfigError(f"{what} has no use for {', '.join(given)}; leave it out")
