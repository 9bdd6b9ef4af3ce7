"""Limits of sources, and a query's start with other ones: the Spark half of `fluxen.control.batches`.

Spark reads how much a source may bring at a time once, when its query starts: as an option in the plan. So other limits
are another plan, with nothing changed but these options, started on the same checkpoint. Files can be limited
(`maxFilesPerTrigger`), and so can Kafka (`maxOffsetsPerTrigger`); what a user has set is where a limit begins.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fluxen.arrays import Json
from fluxen.control.batches import BatchSizes, Resize
from fluxen.errors import ConfigError
from fluxen.spark.catalyst import Maker, dataframe_of, items, jvm, plan_of

__all__ = ["Sizing"]

FILES = {"parquet", "orc", "json", "csv", "text", "avro", "delta"}
_FILES, _BYTES, _OFFSETS = "maxFilesPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerTrigger"
START = {_FILES: 1, _OFFSETS: 10_000}
"""Where limits begin that nobody has set."""
PAUSE = 0.5
"""Seconds between two batches from which on the source is taken to have paused; less is Spark's own work."""


@dataclass(frozen=True, slots=True)
class _Limit:
    """One source's limit, as the plan has it."""

    option: str
    start: int

    def times(self, factor: float) -> int:
        return max(1, round(self.start * factor))


class Sizing:
    """Keeps batches as long as they should be."""

    def __init__(self, spark: SparkSession, rows: DataFrame, target: float) -> None:
        self.spark, self._maker = spark, Maker(spark)
        self._plan = plan_of(rows)
        self._limits = [found for leaf in _leaves(self._plan) if (found := _limit(leaf)) is not None]
        if not self._limits:
            raise ConfigError(
                "latency needs a source whose batches can be limited, which files and Kafka are; leave it out, or "
                "read from one of these"
            )
        self.sizes = BatchSizes(target=target)
        self.due: Resize | None = None
        """a change for which the query has to be started again"""
        self._ended: float | None = None
        self._stopping = 0.0

    def rows(self) -> DataFrame:
        """The sources' rows under the limits as they are now."""
        return dataframe_of(self.spark, self._limited(self._plan))

    @property
    def shown(self) -> str:
        """The limits in words."""
        named = dict.fromkeys(f"{limit.option}={limit.times(self.sizes.factor)}" for limit in self._limits)
        return ", ".join(named)

    def after(self, shown: Json, began: float, ended: float) -> Resize | None:
        """What to do after a batch that was `shown`; times are this process's clock."""
        gap = 0.0 if self._ended is None else began - self._ended
        self._ended = ended
        busy = sum(max((site["busy_seconds"] for site in stage["sites"]), default=0.0) for stage in shown["stages"])
        seconds = ended - began + min(gap, PAUSE)
        self.due = self.sizes.after(rows=shown["rows_in"], seconds=seconds, busy=busy)
        self._stopping = ended
        return self.due

    def starting(self) -> None:
        """The query is about to run with the new limits."""
        self.due = self._ended = None

    def started(self) -> None:
        """It runs."""
        smallest = all(limit.times(self.sizes.factor) == 1 for limit in self._limits)
        self.sizes.started(time.perf_counter() - self._stopping, smallest=smallest)

    def _limited(self, node: Any) -> Any:
        children = items(node.children())
        if not children:
            limit = _limit(node)
            return node if limit is None else self._with_option(node, limit.option, limit.times(self.sizes.factor))
        made = [self._limited(child) for child in children]
        same = all(before is after for before, after in zip(children, made))
        return node if same else self._maker.with_children(node, made)

    def _with_option(self, leaf: Any, option: str, value: int) -> Any:
        if leaf.nodeName() == "StreamingRelationV2":
            options = jvm(self.spark).java.util.HashMap(leaf.extraOptions().asCaseSensitiveMap())
            for known in [key for key in options if key.lower() == option.lower()]:
                options.remove(known)
            options.put(option, str(value))
            given = jvm(self.spark).org.apache.spark.sql.util.CaseInsensitiveStringMap(options)
            return _copied(leaf, 3, given)
        source = leaf.dataSource()
        options = source.options()
        name = next((key for key in _options(source) if key.lower() == option.lower()), option)
        return _copied(leaf, 0, _copied(source, 6, options.updated(name, str(value))))


def _leaves(node: Any) -> list[Any]:
    children = items(node.children())
    return [leaf for child in children for leaf in _leaves(child)] if children else [node]


def _limit(leaf: Any) -> _Limit | None:
    """What limits a source; None for one that cannot be limited, or whose limit is no plain number."""
    kind = leaf.nodeName()
    if kind == "StreamingRelationV2":
        if leaf.sourceName() != "kafka":
            return None
        given = leaf.extraOptions().get(_OFFSETS)
        return _Limit(_OFFSETS, START[_OFFSETS]) if given is None else _plain(_OFFSETS, given)
    if kind != "StreamingRelation" or leaf.dataSource().className().lower() not in FILES:
        return None
    options = {key.lower(): value for key, value in _options(leaf.dataSource()).items()}
    for option in (_FILES, _BYTES):
        if option.lower() in options:
            return _plain(option, options[option.lower()])
    return _Limit(_FILES, START[_FILES])


def _plain(option: str, value: str) -> _Limit | None:
    return _Limit(option, int(value)) if value.isdigit() and int(value) > 0 else None


def _options(source: Any) -> dict[str, str]:
    found, pairs = {}, source.options().iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return found


def _copied(made: Any, at: int, value: Any) -> Any:
    """A case class's object with another value in one place, whatever further places a version of Spark has."""
    return made.copy(*(value if n == at else made.productElement(n) for n in range(made.productArity())))
