"""Who may write a checkpoint: one driver at a time, and none that has lost its claim.

A run takes claim number n + 1, a file that only one can create, if claim n has ended or its driver is dead. A driver of
this machine is dead when its process is; one elsewhere when it has not renewed its claim for `LEASE` seconds, told by
the filesystem's own clock. Taking a claim fences the earlier ones before the newest epoch is read:

* On a local disk a driver prepares every commit inside its claim's directory and links it from there into place. The
  next claimant renames that directory away, so a driver that was thought dead has nothing to link from.
* Elsewhere there is no such operation for all filesystems. A driver looks at the claims right before it commits, and
  renews its own first if half of the lease has passed. What is left is a driver that stops between this look and the
  commit for longer than the rest of its lease.

>>> import tempfile
>>> store = Store(tempfile.mkdtemp())
>>> claim = take(store)
>>> try:
...     take(store)
... except CheckpointError as error:
...     print("in use" in str(error))
True
>>> claim.release()
>>> take(store).number
2
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone

from fluxen.arrays import Json
from fluxen.errors import CheckpointError, DamagedError, FluxenError
from fluxen.state.record import seal, unseal
from fluxen.state.store import Store, storage_errors

CLAIMS = "claims"
LEASE = 60.0
"""Seconds without a sign of life after which a driver on another machine counts as dead."""
RENEWAL = 10.0
"""Seconds between two signs of life."""
_GONE = ".gone-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The driver behind a claim."""

    number: int
    token: str
    host: str
    machine: str
    """tells machines, and containers with process ids of their own, apart that share a host name"""
    pid: int
    started: str
    """when the process started: another process may have got its id since"""
    since: float

    @staticmethod
    def me(number: int) -> Holder:
        return Holder(
            number=number,
            token=uuid.uuid4().hex,
            host=socket.gethostname(),
            machine=_machine(),
            pid=os.getpid(),
            started=_started(os.getpid()),
            since=time.time(),
        )

    def to_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def here(self) -> bool:
        return (self.host, self.machine) == (socket.gethostname(), _machine())

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.since, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"process {self.pid} on {self.host} since {when}"


@dataclass(slots=True)
class Claim:
    """The right to commit, until it is released or taken over."""

    store: Store
    holder: Holder
    _renewed: float = field(default_factory=time.monotonic, init=False)

    @property
    def number(self) -> int:
        return self.holder.number

    def create(self, name: str, data: bytes) -> bool:
        """`Store.create` for the holder of the newest claim only: anyone else gets an error and leaves no trace."""
        if self.store.local:
            try:
                return self.store.create(name, data, via=_directory(self.number))
            except FileNotFoundError:
                raise self._lost() from None
        self.check()
        return self.store.create(name, data)

    def check(self) -> None:
        """Raise unless this is the newest claim; renews it if half of the lease has passed."""
        if time.monotonic() - self._renewed > LEASE / 2:
            self.renew()
        else:
            self.hold()

    def hold(self) -> None:
        """Raise unless this is the newest claim; for any process that acts in the driver's name."""
        if not self._newest():
            raise self._lost()

    def renew(self) -> None:
        """Give a sign of life, or raise if the claim is lost."""
        self.hold()
        self.store.replace(_beat(self.number), self.holder.token.encode())
        self._renewed = time.monotonic()

    def release(self) -> None:
        """End the claim; whatever still runs in its name cannot commit any more."""
        with suppress(FluxenError, OSError):
            if self._newest():
                self.store.create(_over(self.number), b"")
            _fence(self.store, self.number)

    def _newest(self) -> bool:
        return _numbers(self.store)[-1:] == [self.number] and not self.store.exists(_over(self.number))

    def _lost(self) -> CheckpointError:
        return CheckpointError(
            f"this driver does not hold the checkpoint {self.store.root} any more: its claim has ended or another "
            "driver has taken it over; nothing was committed; leave the checkpoint to the other one"
        )


def take(store: Store) -> Claim:
    """Claim a checkpoint for this process, or refuse in one line: another driver uses it."""
    earlier = refuse_if_held(store)
    claim = Claim(store, Holder.me(earlier[-1] + 1 if earlier else 1))
    made = store.create(_file(claim.number), seal(claim.holder.to_json()))
    if not made or _read(store, claim.number).token != claim.holder.token:
        raise CheckpointError(_refusal(store, _read(store, claim.number), "wait for it to end, or stop it"))
    if store.local:
        # after the claim, so that only its holder makes it; then another look, as it may have been fenced before it was
        os.makedirs(store.path(_directory(claim.number)), exist_ok=True)
    claim.check()
    _tidy(store, earlier)
    return claim


def _tidy(store: Store, earlier: list[int]) -> None:
    """Fence earlier claims, then delete them and what crashes have left of others."""
    for number in earlier:
        _fence(store, number)
        for name in (_beat(number), _over(number), _file(number)):
            store.delete(name)
    for name in store.list(CLAIMS):
        if name.endswith(".tmp") and _age(store, f"{CLAIMS}/{name}") > LEASE:
            store.delete(f"{CLAIMS}/{name}")
    for name in store.directories(CLAIMS):
        if _GONE in name:
            store.delete_directory(f"{CLAIMS}/{name}")


def refuse_if_held(store: Store) -> list[int]:
    """The claims so far, none of which counts any more; an error if one does."""
    with storage_errors(f"cannot claim the checkpoint {store.root}"):
        numbers = _numbers(store)
    if not numbers or store.exists(_over(numbers[-1])):
        return numbers
    try:
        holder = current(store)
    except DamagedError as error:  # half a file that a machine without power has left
        age = _silent(store, numbers[-1])
        if age >= LEASE:
            return numbers
        raise DamagedError(
            f"{error}; who claimed the checkpoint {store.root} is unknown: start again in {LEASE - age:.0f} "
            "seconds, or delete the file if no driver uses it"
        ) from None
    if holder is None:
        raise CheckpointError(f"checkpoint {store.root} is being claimed by another driver; stop one of them")
    if holder.here:
        if _alive(holder):
            this = holder.pid == os.getpid()
            advice = "stop() that query first" if this else f"stop it, or kill process {holder.pid} if it hangs"
            raise CheckpointError(_refusal(store, holder, advice))
        return numbers
    age = _silent(store, numbers[-1])
    if age < LEASE:
        advice = (
            f"its last sign of life is {age:.0f} seconds old; if it is dead, start again in "
            f"{LEASE - age:.0f} seconds, otherwise stop it"
        )
        raise CheckpointError(_refusal(store, holder, advice))
    return numbers


def current(store: Store) -> Holder | None:
    """Who holds the checkpoint, dead or alive; None if nobody does."""
    numbers = _numbers(store)
    if not numbers or store.exists(_over(numbers[-1])):
        return None
    try:
        return _read(store, numbers[-1])
    except FileNotFoundError:  # another driver has taken over since
        return None


def living(store: Store) -> Holder | None:
    """Who holds the checkpoint, unless this machine knows that driver to be dead. Writes nothing."""
    try:
        holder = current(store)
    except DamagedError:
        return None
    return None if holder is not None and holder.here and not _alive(holder) else holder


def _refusal(store: Store, holder: Holder, advice: str) -> str:
    return f"checkpoint {store.root} is in use by {holder}; {advice}"


def _silent(store: Store, number: int) -> float:
    """Seconds since the claim's last sign of life."""
    return min(_age(store, name) for name in (_beat(number), _file(number)) if store.exists(name))


def _age(store: Store, name: str) -> float:
    """Seconds since a file was written, by the filesystem's clock: hosts' clocks may differ."""
    probe = f"{CLAIMS}/{uuid.uuid4().hex}.tmp"
    store.write(probe, b"now")
    age = store.modified(probe) - store.modified(name)
    store.delete(probe)
    return age


def _fence(store: Store, number: int) -> None:
    """Take away the directory from which a claim commits."""
    if store.local:
        gone = store.path(f"{_directory(number)}{_GONE}{uuid.uuid4().hex[:8]}")
        with suppress(FileNotFoundError):
            os.rename(store.path(_directory(number)), gone)
            shutil.rmtree(gone, ignore_errors=True)


def _read(store: Store, number: int) -> Holder:
    name = _file(number)
    return Holder(**unseal(store.read(name), store.path(name)))


def _numbers(store: Store) -> list[int]:
    return sorted(int(name[:-5]) for name in store.list(CLAIMS) if name.endswith(".json"))


def _file(number: int) -> str:
    return f"{CLAIMS}/{number:010d}.json"


def _directory(number: int) -> str:
    return f"{CLAIMS}/{number:010d}"


def _beat(number: int) -> str:
    return f"{CLAIMS}/{number:010d}.beat"


def _over(number: int) -> str:
    return f"{CLAIMS}/{number:010d}.over"


def _machine() -> str:
    """This boot of this machine and the process ids valid in it; empty where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _alive(holder: Holder) -> bool:
    """Whether the process that made a claim on this machine is still there."""
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    started = _started(holder.pid)
    return started in ("", holder.started) and started != _DEFUNCT


_DEFUNCT = "defunct"


def _started(pid: int) -> str:
    """When a process started, as the system tells it; empty if it does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return _DEFUNCT if fields[0] in "ZX" else fields[19]
    except OSError:
        pass
    with suppress(OSError):
        shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return shown.stdout.strip()
    return ""
