"""Damaged checkpoints, other queries' checkpoints, full disks: one clear line, and it goes on once repaired."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fluxen as fx
from fluxen.errors import CheckpointError, DamagedError, FluxenError, StorageError
from fluxen.state.store import Store
from fluxen.testing import feeds
from tests.conftest import Collected
from tests.spark.rows import events

pytestmark = pytest.mark.spark

A = [events([1, 2, 3, 4], [0, 1, 2, 3], [1, 2, 3, 4]), events([5], [4], [5]), events([6], [5], [6])]
B = [events([9], [0], [0]), events([5], [4], [50]), events([1, 2, 3, 4, 6], [5] * 5, [10, 20, 30, 40, 60])]
PAIRS = [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (6, 60)]


def query(spark: Any, directory: Path, batches: int = 3, **limits: Any) -> Any:
    streams = feeds(spark, {"a": A[:batches], "b": B[:batches]}, directory / "input")
    return fx.join(streams, on="k", time="ts", **{"within": "1 minute", **limits}).adapt(sites=2, partitions=8)


def pairs(sink: Collected) -> list[tuple[int, int]]:
    return sorted((row["a_v"], row["b_v"]) for row in sink.rows)


def go_on(spark: Any, directory: Path, checkpoint: Path, sink: Any) -> None:
    writer = query(spark, directory).writeStream.foreachBatch(sink).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


@pytest.fixture(scope="module")
def prepared(spark: Any, tmp_path_factory: Any) -> tuple[Path, Collected]:
    """A checkpoint after two of three batches."""
    directory, sink = tmp_path_factory.mktemp("prepared"), Collected()
    writer = query(spark, directory, 2).writeStream.foreachBatch(sink).trigger(availableNow=True)
    writer.option("checkpointLocation", str(directory / "checkpoint")).start().awaitTermination()
    return directory, sink


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("harm", [flip, truncate, empty, Path.unlink], ids=lambda f: f.__name__)
@pytest.mark.parametrize("what", ["segments", "epochs"])
def test_a_damaged_file_is_named_and_the_query_goes_on_once_it_is_restored(spark, prepared, tmp_path, what, harm):
    directory, before = prepared
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(directory / "checkpoint", checkpoint)
    victims = sorted((checkpoint / what).iterdir())
    victims = victims[-1:] if what == "epochs" else victims
    copies = {path: path.read_bytes() for path in victims}
    for path in victims:
        harm(path)
    kind = CheckpointError if what == "epochs" and harm is Path.unlink else DamagedError
    with pytest.raises(kind) as raised:
        go_on(spark, directory, checkpoint, Collected())
    message = str(raised.value)
    assert "\n" not in message
    assert kind is CheckpointError or any(str(path) in message for path in victims), message
    for path, data in copies.items():
        path.write_bytes(data)
    sink = Collected()
    sink.epochs.update(before.epochs)
    go_on(spark, directory, checkpoint, sink)
    assert pairs(sink) == PAIRS


def test_a_damaged_identity_is_named_and_may_be_deleted(spark, prepared, tmp_path):
    directory, before = prepared
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(directory / "checkpoint", checkpoint)
    flip(checkpoint / "fluxen.json")
    with pytest.raises(DamagedError, match=r"fluxen\.json is damaged"):
        go_on(spark, directory, checkpoint, Collected())
    (checkpoint / "fluxen.json").unlink()
    sink = Collected()
    sink.epochs.update(before.epochs)
    go_on(spark, directory, checkpoint, sink)
    assert pairs(sink) == PAIRS


def others(spark: Any, directory: Path) -> dict[str, tuple[Any, str]]:
    mine = query(spark, directory)
    ((a, b),) = mine.inputs
    return {
        "another window": (query(spark, directory, within="2 minutes"), "bounds"),
        "another operator": (fx.distinct(a, by="k", time="ts").adapt(partitions=8), "'operator': 'join'"),
        "other names": (fx.join({"x": a, "b": b}, on="k", time="ts", within="1 minute").adapt(partitions=8), "'x'"),
        "other keys": (fx.join({"a": a, "b": b}, on="v", time="ts", within="1 minute").adapt(partitions=8), "v bigint"),
        "other partitions": (mine.adapt(partitions=16), "partitions was 8, now 16"),
        "another stage": (mine.aggregate(by="k", n=fx.count()), "aggregate"),
    }


@pytest.mark.parametrize(
    "what", ["another window", "another operator", "other names", "other keys", "other partitions", "another stage"]
)
def test_a_checkpoint_is_refused_by_a_query_with(what, spark, prepared):
    directory, _ = prepared
    other, named = others(spark, directory)[what]
    writer = other.writeStream.foreachBatch(Collected()).option("checkpointLocation", str(directory / "checkpoint"))
    with pytest.raises(CheckpointError, match="belongs to another query") as raised:
        writer.start()
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_disk_that_is_full_at_the_driver_loses_nothing(spark, collected, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        write = Store._write

        def full(store: Store, name: str, data: bytes, **where: bool) -> None:
            if name.startswith("claims/0000000001/0000000001.json"):  # epoch 1 on its way
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(store, name, data, **where)

        patched.setattr(Store, "_write", full)
        with pytest.raises(StorageError, match="the disk is full: free some space"):
            go_on(spark, tmp_path, tmp_path / "checkpoint", collected)
    go_on(spark, tmp_path, tmp_path / "checkpoint", collected)
    assert pairs(collected) == PAIRS


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A real filesystem of a few pages."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("mounting a small filesystem is not permitted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_fills_up_under_the_sites_loses_nothing(spark, small_disk, tmp_path):
    sink = Collected()
    streams = feeds(spark, {"a": A[:1], "b": B[:1]}, tmp_path / "input")
    joined = fx.join(streams, on="k", time="ts", within="1 minute").adapt(sites=2, partitions=8)

    def start(query: Any) -> None:
        writer = query.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", str(small_disk / "checkpoint")).start().awaitTermination()

    start(joined)
    ballast = small_disk / "ballast"
    room = os.statvfs(small_disk)
    ballast.write_bytes(b"x" * (room.f_bavail * room.f_frsize - 40 * 1024))
    # more rows than the room that is left
    big = events(range(1000, 6000), [4] * 5000, range(5000))
    streams = feeds(spark, {"a": [A[0], big], "b": [B[0], big]}, tmp_path / "input")
    joined = fx.join(streams, on="k", time="ts", within="1 minute").adapt(sites=2, partitions=8)
    with pytest.raises(FluxenError, match="the disk is full: free some space") as raised:
        start(joined)
    assert "\n" not in str(raised.value)
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    start(joined)
    assert len(sink.rows) == 5000
