"""Segments: what is written is what is read, and anything else is refused."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pyarrow as pa
import pytest

from fluxen.arrays import MAX_TIME, MIN_TIME
from fluxen.errors import CheckpointError, DamagedError
from fluxen.state import segment as segments
from fluxen.state.routing import base_group
from fluxen.state.segment import SegmentRef, open_segment, verify_segment, write_segment
from fluxen.state.store import Store


def rows(count: int = 50, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    h = np.sort(rng.integers(-(2**63), 2**63 - 1, count))
    nested = pa.array(
        [{"x": [int(i)], "y": None} for i in range(count)], pa.struct({"x": pa.list_(pa.int64()), "y": pa.string()})
    )
    return pa.table({"_h": h, "_t": rng.integers(0, 1000, count), "s": [f"row {i}" for i in range(count)], "n": nested})


def write(store: Store, table: pa.Table, name: str = "segments/a.arrow", **options) -> SegmentRef:
    return write_segment(store, name, table, side=0, partitions=8, epochs=(0, 0), live=((0, 8),), **options)


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path))


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """As if another process had written the files."""
    monkeypatch.setattr(segments, "_verified", OrderedDict())


def test_rows_come_back_as_they_were_written(store):
    table = rows()
    ref = write(store, table)
    segments._verified.clear()
    opened = open_segment(store, ref)
    assert opened.table.replace_schema_metadata(None).equals(table)
    assert opened.h.tolist() == table.column("_h").to_pylist()
    assert (ref.rows, ref.t_min, ref.t_max) == (50, int(opened.t.min()), int(opened.t.max()))


def test_offsets_cut_the_rows_at_the_partition_groups(store):
    table = rows(500)
    opened = open_segment(store, write(store, table))
    groups = base_group(opened.h, 8)
    assert len(opened.offsets) == 9
    for group in range(8):
        assert set(groups[opened.offsets[group] : opened.offsets[group + 1]].tolist()) <= {group}
    assert opened.offsets[-1] == 500


def test_a_segment_without_rows_has_an_empty_time_range(store):
    ref = write(store, rows(0))
    assert (ref.rows, ref.t_min, ref.t_max) == (0, MAX_TIME, MIN_TIME)
    assert open_segment(store, ref).table.num_rows == 0


def test_a_reference_survives_json(store):
    ref = write(store, rows())
    assert SegmentRef.from_json(ref.to_json()) == ref


@pytest.mark.parametrize("check", [open_segment, verify_segment])
@pytest.mark.parametrize("position", [0, 100, 0.5, -1])
def test_any_flipped_byte_is_found(store, tmp_path, check, position):
    ref = write(store, rows())
    segments._verified.clear()
    path = tmp_path / ref.name
    data = bytearray(path.read_bytes())
    data[int(len(data) * position) if isinstance(position, float) else position] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=r"a\.arrow is damaged \(its checksum"):
        check(store, ref)


@pytest.mark.parametrize("check", [open_segment, verify_segment])
@pytest.mark.parametrize("size", [0, 10, 1000])
def test_a_truncated_segment_is_found(store, tmp_path, check, size):
    ref = write(store, rows())
    path = tmp_path / ref.name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamagedError, match=r"a\.arrow is damaged"):
        check(store, ref)


@pytest.mark.parametrize("check", [open_segment, verify_segment])
def test_a_missing_segment_is_named(store, tmp_path, check):
    ref = write(store, rows())
    (tmp_path / ref.name).unlink()
    with pytest.raises(DamagedError, match=r"a\.arrow is missing"):
        check(store, ref)


def test_a_file_that_changes_after_it_was_checked_is_checked_again(store, tmp_path):
    ref = write(store, rows())
    open_segment(store, ref)
    path = tmp_path / ref.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="its checksum"):
        open_segment(store, ref)


def test_another_format_version_is_refused_by_number(store, monkeypatch):
    monkeypatch.setattr(segments, "VERSION", 99)
    ref = write(store, rows())
    monkeypatch.setattr(segments, "VERSION", 1)
    with pytest.raises(CheckpointError, match="state format version 99, this fluxen reads version 1"):
        open_segment(store, ref)
