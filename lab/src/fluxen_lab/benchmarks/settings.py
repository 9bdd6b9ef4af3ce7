"""Native Spark's best settings per part, and the search that found them.

The rates of every setting tried are in docs/benchmarks.md. `fluxen bench NAME --rediscover` searches again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fluxen_lab.benchmarks.context import Context, Prepared
from fluxen_lab.benchmarks.job import PROVIDERS, Settings

__all__ = ["BEST", "CANDIDATES", "LIMIT_S", "Trial", "best_settings"]

BEST: dict[str, Settings] = {
    "tumbling": Settings(provider="hdfs", shuffle_partitions=4),
    "w1": Settings(provider="hdfs", shuffle_partitions=2),
    # as found for w1 and tumbling, which these are made like
    "query-two-way": Settings(provider="hdfs", shuffle_partitions=2),
    "query-three-way": Settings(provider="hdfs", shuffle_partitions=2),
    "query-two-way-large": Settings(provider="hdfs", shuffle_partitions=2),
    "query-three-way-large": Settings(provider="hdfs", shuffle_partitions=2),
    "query-left-outer": Settings(provider="hdfs", shuffle_partitions=2),
    "query-join-then-window": Settings(provider="hdfs", shuffle_partitions=2),
    "query-hopping": Settings(provider="hdfs", shuffle_partitions=4),
    "w2": Settings(provider="hdfs", shuffle_partitions=2),
}
CANDIDATES = tuple(
    Settings(provider=provider, shuffle_partitions=count) for provider in PROVIDERS for count in (2, 4, 8)
)
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting and the steady rate it gave; None if it gave none within the limit."""

    settings: Settings
    rows_per_s: float | None

    def as_json(self) -> dict[str, object]:
        return {
            "provider": self.settings.provider,
            "shuffle_partitions": self.settings.shuffle_partitions,
            "rows_per_s": None if self.rows_per_s is None else round(self.rows_per_s),
        }


def best_settings(context: Context, prepared: Prepared, part: str, query: str) -> tuple[Settings, list[Trial]]:
    """The table's settings, or with `rediscover` the fastest of all candidates on this machine and these files."""
    if not context.options.rediscover:
        return BEST[part], []
    trials = []
    for settings in CANDIDATES:
        name = f"search-{part}-{settings.provider}-{settings.shuffle_partitions}"
        job = replace(context.job(prepared, query, name), settings=settings, limit_s=LIMIT_S, grace_s=LIMIT_S / 2)
        trials.append(Trial(settings=settings, rows_per_s=context.measure(prepared, job).rows_per_s))
    fastest = max(trials, key=lambda trial: trial.rows_per_s or 0.0)
    context.say(f"best for {part}: {fastest.settings}")
    return fastest.settings, trials
