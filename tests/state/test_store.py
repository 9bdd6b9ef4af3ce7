"""The store: files appear whole, at most once, and the filesystem's refusals are told in one line."""

from __future__ import annotations

import errno
import os
import pickle
import threading
from pathlib import Path

import pytest

from fluxen.errors import ConfigError, StorageError
from fluxen.state.store import Store


def test_only_one_of_many_writers_creates_a_file(tmp_path):
    store = Store(str(tmp_path))
    made: list[int] = []
    ready = threading.Barrier(8)

    def create(number: int) -> None:
        ready.wait()
        if store.create("epochs/1.json", b"%d" % number):
            made.append(number)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert store.read("epochs/1.json") == b"%d" % made[0]
    assert store.list("epochs") == ["1.json"]


def test_a_file_that_exists_is_never_replaced(tmp_path):
    store = Store(str(tmp_path))
    assert store.create("a", b"first")
    assert not store.create("a", b"second")
    assert store.read("a") == b"first"


def test_listing_sorts_files_and_a_missing_directory_is_empty(tmp_path):
    store = Store(str(tmp_path))
    for name in ("d/b", "d/a", "d/sub/c"):
        store.write(name, b"")
    assert store.list("d") == ["a", "b"]
    assert store.list("nowhere") == []


def test_deleting_what_is_gone_is_fine(tmp_path):
    store = Store(str(tmp_path))
    store.write("a", b"")
    store.delete("a")
    store.delete("a")
    store.delete_directory("nowhere")
    assert not store.exists("a")


def test_a_uri_means_the_same_files_as_its_path(tmp_path):
    Store(str(tmp_path)).write("x/a", b"1")
    store = Store(tmp_path.as_uri())
    assert store.read("x/a") == b"1"
    assert store.local
    assert store.mappable("x/a", 1) == str(tmp_path / "x/a")


def test_a_relative_root_stays_where_it_was_in_processes_that_work_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store("checkpoint")
    store.write("a", b"1")
    sent = pickle.dumps(store)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(sent).read("a") == b"1"


def test_a_root_nothing_can_open_is_refused():
    with pytest.raises(ConfigError, match="not a path or URI that pyarrow can open"):
        Store("nosuch://host/path")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "the disk is full: free some space"),
        (errno.EACCES, "make the directory writable"),
        (errno.EROFS, "make the directory writable"),
        (errno.EIO, "started again once it is gone"),
    ],
)
def test_the_filesystems_refusal_says_what_to_do(tmp_path, monkeypatch, code, advice):
    def refuse(store, name, data):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Store, "_write", refuse)
    with pytest.raises(StorageError, match=advice) as raised:
        Store(str(tmp_path)).write("a", b"1")
    assert "the last committed epoch is intact" in str(raised.value)


def test_a_file_in_pieces_is_whole_or_absent(tmp_path):
    store = Store(str(tmp_path))
    store.write("a", iter([b"12", memoryview(b"3")]))
    assert store.read("a") == b"123"

    def pieces():
        yield b"12"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        store.write("b", pieces())
    assert not store.exists("b")


def test_a_write_that_fails_leaves_no_half_file():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    store = Store("/dev")
    path = Path("/dev/fluxen-full-test")
    path.symlink_to("/dev/full")
    try:
        with pytest.raises(StorageError, match="the disk is full"):
            store.write("fluxen-full-test", b"1")
        assert not path.is_symlink()
    finally:
        path.unlink(missing_ok=True)
