"""A checkpoint that is slow on purpose: what waits, what is cached where, and that it survives the way to a site."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from fluxen.errors import DamagedError
from fluxen.state.segment import open_segment, write_segment
from fluxen_lab.emulate.distant import Distant


def test_reading_takes_its_time_and_a_copy_does_not(tmp_path):
    naps: list[float] = []
    store = Distant(str(tmp_path / "root"), str(tmp_path / "cache"), per_byte=0.5, wait=naps.append)
    store.write("segments/one", b"0123456789")
    assert naps == []
    for _ in range(2):
        with open(store.mappable("segments/one", 10), "rb") as file:
            assert file.read() == b"0123456789"
    assert naps == [5.0]


def test_at_a_site_it_is_what_it_was(tmp_path):
    store = Distant(str(tmp_path), str(tmp_path / "cache"), per_byte=0.5, ahead=False)
    there = pickle.loads(pickle.dumps(store))
    assert isinstance(there, Distant)
    assert (there.root, there.cache, there.per_byte, there.ahead) == (store.root, store.cache, 0.5, False)
    assert (there.local, there.shared) == (False, True)


def test_a_damaged_copy_is_fetched_again_and_a_damaged_file_is_named(tmp_path):
    store = Distant(str(tmp_path / "root"), str(tmp_path / "cache"), per_byte=0.0)
    table = pa.table({"_h": [-5, 0], "_t": [1, 2], "v": ["a", "b"]})
    ref = write_segment(store, "segments/one.arrow", table, side=0, partitions=4, epochs=(0, 0), live=((0, 4),))
    copy = Path(store.mappable(ref.name, ref.bytes))
    copy.write_bytes(bytes(ref.bytes))
    assert open_segment(store, ref).table.column("v").to_pylist() == ["a", "b"]
    copy.unlink()
    (tmp_path / "root" / ref.name).write_bytes(bytes(ref.bytes))
    with pytest.raises(DamagedError, match="checksum"):
        open_segment(store, ref)
