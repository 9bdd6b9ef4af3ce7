"""Files of a checkpoint: any filesystem pyarrow knows, with a local cache when it is not this machine's disk.

Every file is written once under a name nobody else uses, so nothing here needs a lock. What refers to what is the
business of `fluxen.state.epoch`.
"""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow import fs

from fluxen.errors import ConfigError, DamagedError, StorageError

FETCHED = 1 << 20
"""Bytes copied at a time when a file is fetched ahead."""


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Turn what the filesystem says into an error that tells what to do."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC or "No space left" in str(error):
            hint = "the disk is full: free some space and start the query again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            hint = "make the directory writable for this user, or choose another checkpoint location"
        else:
            hint = "see the cause above; the query can be started again once it is gone"
        raise StorageError(f"{what}: {error}; the last committed epoch is intact; {hint}") from error


def checksum(data: bytes | memoryview, before: int = 0) -> int:
    """CRC-32 of the data, or of what came before followed by it."""
    return zlib.crc32(data, before)


@dataclass(slots=True)
class Store:
    """The checkpoint's files below one root, addressed by relative path.

    `root` is a path or a URI. `cache` is where files of a non-local root are kept for memory mapping.
    """

    root: str
    cache: str = field(default_factory=lambda: str(Path(tempfile.gettempdir()) / "fluxen-cache"))
    _fs: fs.FileSystem | None = field(default=None, init=False, repr=False, compare=False)
    _base: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if "://" in self.root or self.root.startswith("file:"):
            try:
                self._fs, self._base = fs.FileSystem.from_uri(self.root)
            except (ValueError, OSError) as error:
                raise ConfigError(
                    f"checkpoint location {self.root!r} is not a path or URI that pyarrow can open: {error}"
                ) from error
        else:
            # absolute, because the sites' processes work in other directories
            self.root = os.path.abspath(self.root)
            self._fs, self._base = fs.LocalFileSystem(), self.root

    def __reduce__(self) -> tuple[type[Store], tuple[str, str]]:
        return Store, (self.root, self.cache)

    @property
    def local(self) -> bool:
        return isinstance(self._fs, fs.LocalFileSystem)

    @property
    def shared(self) -> bool:
        """Whether sites read files where they are, so that a move copies nothing."""
        return self.local

    def path(self, name: str) -> str:
        return f"{self._base}/{name}"

    def write(self, name: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        """Write a whole file, given in one piece or, so that it need not be held, in several.

        It is visible only when complete on filesystems that can do it.
        """
        with storage_errors(f"cannot write {name} under {self.root}"):
            self._write(name, [data] if isinstance(data, bytes) else data)

    def _write(self, name: str, pieces: Iterable[bytes | memoryview], *, inside: bool = False) -> None:
        """With `inside`, only into a directory that exists."""
        path = self.path(name)
        if self.local:
            try:
                file = open(path, "wb", buffering=0)  # noqa: SIM115
            except FileNotFoundError:
                if inside:
                    raise
                os.makedirs(os.path.dirname(path), exist_ok=True)
                file = open(path, "wb", buffering=0)  # noqa: SIM115
            try:
                with file:
                    for piece in pieces:
                        view = memoryview(piece)
                        while len(view):
                            view = view[file.write(view) :]
            except Exception:
                with suppress(OSError):
                    os.unlink(path)  # half a file is useless, and the disk may be full
                raise
            return
        assert self._fs is not None
        self._fs.create_dir(os.path.dirname(path), recursive=True)
        with self._fs.open_output_stream(path) as stream:
            for piece in pieces:
                stream.write(piece)

    def create(self, name: str, data: bytes, via: str | None = None) -> bool:
        """Write a file atomically unless it exists; whether this call made it.

        On a local disk it can be prepared in the directory `via`; if that is gone, nothing is made (FileNotFoundError).
        """
        if via is not None and self.local:
            temporary = f"{via}/{os.path.basename(name)}.{uuid.uuid4().hex[:12]}.tmp"
            with storage_errors(f"cannot write {name} under {self.root}"):
                os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
                self._write(temporary, [data], inside=True)
        else:
            temporary = f"{name}.{uuid.uuid4().hex[:12]}.tmp"
            self.write(temporary, data)
        with storage_errors(f"cannot commit {name} under {self.root}"):
            if self.local:
                try:
                    os.link(self.path(temporary), self.path(name))
                    return True
                except FileExistsError:
                    return False
                finally:
                    self.delete(temporary)
            if self.exists(name):
                self.delete(temporary)
                return False
            assert self._fs is not None
            self._fs.move(self.path(temporary), self.path(name))
            return True

    def replace(self, name: str, data: bytes) -> None:
        """Write a file that may exist already: others see the old or the new one, on filesystems that can do it."""
        if not self.local:
            self.write(name, data)
            return
        temporary = f"{name}.{uuid.uuid4().hex[:12]}.tmp"
        self.write(temporary, data)
        with storage_errors(f"cannot write {name} under {self.root}"):
            os.replace(self.path(temporary), self.path(name))

    def size(self, name: str) -> int:
        """Bytes of a file; 0 if there is none."""
        assert self._fs is not None
        return int(self._fs.get_file_info(self.path(name)).size or 0)

    def modified(self, name: str) -> float:
        """When a file was written, in seconds since 1970 by the filesystem's clock."""
        assert self._fs is not None
        seconds: float = self._fs.get_file_info(self.path(name)).mtime_ns / 1e9
        return seconds

    def read(self, name: str) -> bytes:
        if self.local:
            with open(self.path(name), "rb") as file:
                return file.read()
        assert self._fs is not None
        with self._fs.open_input_file(self.path(name)) as file:
            data: bytes = file.read()
            return data

    def exists(self, name: str) -> bool:
        assert self._fs is not None
        found: bool = self._fs.get_file_info(self.path(name)).type != fs.FileType.NotFound
        return found

    def list(self, directory: str) -> list[str]:
        """Names of the files directly in `directory`, sorted; empty if there is none."""
        if self.local:
            try:
                return sorted(entry.name for entry in os.scandir(self.path(directory)) if entry.is_file())
            except FileNotFoundError:
                return []
        assert self._fs is not None
        selector = fs.FileSelector(self.path(directory), allow_not_found=True)
        return sorted(info.base_name for info in self._fs.get_file_info(selector) if info.is_file)

    def directories(self, directory: str) -> Sequence[str]:
        """Names of the directories directly in `directory`, sorted."""
        assert self._fs is not None
        selector = fs.FileSelector(self.path(directory), allow_not_found=True)
        infos = self._fs.get_file_info(selector)
        return sorted(info.base_name for info in infos if info.type == fs.FileType.Directory)

    def delete(self, name: str) -> None:
        """Remove a file; a file already gone is fine."""
        with suppress(FileNotFoundError):
            if self.local:
                os.unlink(self.path(name))
            else:
                assert self._fs is not None
                self._fs.delete_file(self.path(name))

    def delete_directory(self, name: str) -> None:
        assert self._fs is not None
        with suppress(OSError):
            self._fs.delete_dir(self.path(name))

    def mappable(self, name: str, size: int) -> str:
        """A local path of the file's bytes, fetched into the cache first if the root is elsewhere."""
        if self.local:
            return self.path(name)
        cached = self._cached(name)
        if not (cached.exists() and cached.stat().st_size == size):
            try:
                data = self.read(name)
            except FileNotFoundError:
                raise DamagedError(missing(self.path(name))) from None
            self.keep(name, [data])
        return str(cached)

    def _cached(self, name: str) -> Path:
        return Path(self.cache) / f"{checksum(self.root.encode()):08x}" / name

    def fetch(self, name: str, size: int, go_on: Callable[[], bool], who: str) -> int:
        """Copy a file of a non-local root into the cache, piece by piece while `go_on`; bytes still missing.

        What was copied is kept under the name of `who` copies, for the next call to go on with.
        """
        cached = self._cached(name)
        if self.local or (cached.exists() and cached.stat().st_size == size):
            return 0
        if not go_on():
            return size - _size(cached.with_suffix(f".{who}.part"))
        assert self._fs is not None
        cached.parent.mkdir(parents=True, exist_ok=True)
        part = cached.with_suffix(f".{who}.part")
        have = _size(part)
        with (
            storage_errors(f"cannot cache {name} under {self.cache}"),
            self._fs.open_input_file(self.path(name)) as source,
            part.open("ab") as copy,
        ):
            source.seek(have)
            while have < size and go_on():
                piece = source.read(min(FETCHED, size - have))
                if not piece:
                    break
                copy.write(piece)
                have += len(piece)
        if have >= size:
            os.replace(part, cached)
        return size - have

    def keep(self, name: str, pieces: Iterable[bytes]) -> None:
        """Put a copy of a file into the cache of a non-local root."""
        if self.local:
            return
        cached = self._cached(name)
        cached.parent.mkdir(parents=True, exist_ok=True)
        temporary = cached.with_suffix(f".{os.getpid()}.tmp")
        with storage_errors(f"cannot cache {name} under {self.cache}"):
            with temporary.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
            os.replace(temporary, cached)

    def forget(self, name: str) -> bool:
        """Drop the copy of a file of a non-local root; whether there was one."""
        if self.local or not self._cached(name).exists():
            return False
        self._cached(name).unlink(missing_ok=True)
        return True

    def evict(self, directory: str, useless: Callable[[str], bool]) -> None:
        """Drop copies, finished or not, of files directly in `directory` that are `useless` by their names."""
        if self.local:
            return
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._cached(directory)):
                if useless(entry.name):
                    with suppress(FileNotFoundError):
                        os.unlink(entry.path)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def missing(path: str) -> str:
    return (
        f"{path} is missing although a committed epoch refers to it; restore the file from a copy of the checkpoint, "
        "or start with a new checkpoint location"
    )


def damaged(path: str, what: str) -> str:
    return (
        f"{path} is damaged ({what}); restore the file from a copy of the checkpoint, "
        "or start with a new checkpoint location"
    )
