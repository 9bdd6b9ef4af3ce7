"""What all tests share: one SparkSession, and a sink that keeps what each epoch brought."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

from fluxen.testing import oracle
from tests.effort import HUNT

# `make check` and `make test` try the same random cases each time, so that a red run is a change's fault; `make hunt`
# tries new ones
settings.register_profile("suite", derandomize=HUNT <= 1)
settings.load_profile("suite")

# rows collected from Spark show timestamps in the process's time zone; the oracle's are UTC
os.environ["TZ"] = "UTC"
time.tzset()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session all Spark tests share: small, quiet, quick to warm up."""
    import fluxen as fx

    session = fx.session(
        "fluxen-tests",
        master="local[2]",
        spark__driver__memory="1g",
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.level=error",
        spark__sql__shuffle__partitions=2,
        spark__sql__streaming__forceDeleteTempCheckpointLocation="true",
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Collected:
    """An idempotent sink: what each epoch brought, checked to be the same on re-delivery."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[dict[str, Any]]] = {}
        self.calls: list[int] = []

    def __call__(self, results: Any, epoch: int) -> None:
        rows = [row.asDict(recursive=True) for row in results.collect()]
        self.calls.append(epoch)
        if epoch in self.epochs:
            again, before = (oracle.canonical_rows(found, 17) for found in (rows, self.epochs[epoch]))
            assert again == before, f"epoch {epoch} was delivered again with other rows"
        self.epochs[epoch] = rows

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for epoch in sorted(self.epochs) for row in self.epochs[epoch]]

    def canonical(self) -> list[str]:
        return oracle.canonical_rows(self.rows)


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
def drain(tmp_path: Any) -> Callable[..., Any]:
    """Run a query over all input there is, on this test's checkpoint; gives the finished run."""

    def run(query: Any, sink: Any, checkpoint: str = "checkpoint", **options: Any) -> Any:
        writer = query.writeStream.foreachBatch(sink).trigger(availableNow=True)
        started = writer.option("checkpointLocation", str(tmp_path / checkpoint)).options(**options).start()
        started.awaitTermination()
        return started

    return run
