"""Resident memory of a measured run, summed over every process of its session and read from /proc.

runner.py samples it from outside; spark/worker.py reads it once from inside, before its query starts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

__all__ = ["Footprint", "Sampler", "footprint", "processor_seconds", "session_pids"]

_PROC = Path("/proc")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Resident megabytes. `rss_mb` counts a page shared by two processes twice, `pss_mb` once.

    `workers_mb` is that of Spark's Python workers, where the state is: every Python process but the session's first.
    """

    rss_mb: float = 0.0
    python_mb: float = 0.0
    workers_mb: float = 0.0
    pss_mb: float = 0.0

    def peak(self, other: Footprint) -> Footprint:
        return Footprint(
            rss_mb=max(self.rss_mb, other.rss_mb),
            python_mb=max(self.python_mb, other.python_mb),
            workers_mb=max(self.workers_mb, other.workers_mb),
            pss_mb=max(self.pss_mb, other.pss_mb),
        )


def session_pids(session: int) -> list[int]:
    """Every process of a session: unlike a walk over parents, it also finds orphans (Spark's Python workers)."""
    return [pid for pid, _ in _members(session)]


def _members(session: int) -> list[tuple[int, int]]:
    """Process and parent ids."""
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found.append((int(entry.name), int(fields[1])))
    return found


def footprint(
    session: int, *, members: Sequence[tuple[int, int]] | None = None, shared_once: bool = False
) -> Footprint:
    """The session's memory now, or that of some `members`; `shared_once` also reads the proportional sizes.

    To find the members looks at every process there is, proportional sizes walk page tables: both cost milliseconds.
    """
    rss = python = workers = pss = 0.0
    members = _members(session) if members is None else members
    names = {pid: _program(pid) for pid, _ in members}
    for pid, parent in members:
        # a JVM about to start a program shares its whole memory with the child for an instant
        if names[pid] == names.get(parent) == "java":
            continue
        try:
            megabytes = int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE_MB
            pss += _proportional_mb(pid) if shared_once else 0.0
        except OSError:
            continue
        rss += megabytes
        if names[pid].startswith("python"):
            python += megabytes
            workers += megabytes if pid != session else 0.0
    return Footprint(rss_mb=rss, python_mb=python, workers_mb=workers, pss_mb=pss)


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(_PROC / str(pid) / "exe"))
    except OSError:
        return ""


def _proportional_mb(pid: int) -> float:
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


class Sampler(threading.Thread):
    """Keeps the peak footprint of a session until stopped."""

    def __init__(self, session: int, *, period_s: float = 0.25) -> None:
        super().__init__(daemon=True)
        self._session = session
        self._period_s = period_s
        self._done = threading.Event()
        self.peak = Footprint()

    def run(self) -> None:
        ticks = count()
        members: list[tuple[int, int]] = []
        while not self._done.wait(self._period_s):
            # what costs milliseconds is done once a second
            full = next(ticks) % round(1 / self._period_s) == 0
            members = _members(self._session) if full else members
            self.peak = self.peak.peak(footprint(self._session, members=members, shared_once=full))

    def stop(self) -> Footprint:
        self._done.set()
        self.join()
        return self.peak


def processor_seconds(session: int) -> float:
    """What the processes of a session, and those of them that have ended, have worked."""
    ticks = 0
    for pid in session_pids(session):
        try:
            ticks += sum(map(int, (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")
