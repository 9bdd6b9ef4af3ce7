"""How far the inputs of each stage have come: pure transitions, no clock.

An input of the first stage has come as far as the latest event time among its source's rows, less its lateness. A stage
that another one feeds has come as far as that one's results cannot fall behind: `Operator.output_watermarks` derives
this from the feeding stage's own watermarks, its time bounds and what generations on disk still owe. All of it is about
the batch after the epoch: what a stage emits in batch n + 1 is not older than what epoch n says about the stage it
feeds. `fluxen.control.advance` puts the epoch together.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxen.arrays import MAX_TIME, MIN_TIME
from fluxen.operators.base import Operator, Progress
from fluxen.state import generations
from fluxen.state.epoch import StageState

LONGEST = 2**56
"""More microseconds than any window or pause between rows has: 2,283 years."""
Marks = tuple[int, ...]
Idle = tuple[int | None, ...]


def seen(before: Marks, latest: Sequence[int | None], lateness: Marks) -> Marks:
    """Per input of a source: the latest event time so far, less the lateness; a mark never goes back."""
    return tuple(mark if time is None else max(mark, time - late) for mark, time, late in zip(before, latest, lateness))


def fed(before: Marks, marks: Marks, bounds: Sequence[int | None], lateness: Marks) -> Marks:
    """The marks, with those of inputs that another stage feeds at the bound its results will not lie below.

    What that stage owes may make the bound fall back, but not what comes of it: debts that are new are made with rows
    that were within the bound, so what held before still holds.

    >>> fed((5, 5), (9, 5), (None, 8), (0, 1))
    (9, 7)
    """
    return tuple(
        mark if bound is None else _fed(least, bound, late)
        for least, mark, bound, late in zip(before, marks, bounds, lateness)
    )


def _fed(before: int, bound: int, lateness: int) -> int:
    if bound >= MAX_TIME - LONGEST:  # the stage before has ended; what it gives last is at most a window before that
        return MAX_TIME
    return max(before, bound - lateness, MIN_TIME)


def quiet(before: Sequence[float], heard: Sequence[bool], elapsed: float, idle: Idle) -> tuple[float, ...]:
    """Seconds each input has been without a row while the query ran; empty where nobody asks."""
    if not any(limit is not None for limit in idle):
        return ()
    seconds = before or (0.0,) * len(heard)
    return tuple(0.0 if rows else lasted + elapsed for lasted, rows in zip(seconds, heard))


def following(marks: Marks, quiet: Sequence[float], idle: Idle) -> Marks:
    """The marks with idle inputs no longer behind those that are not; behind none, if all are idle.

    >>> following((50, 0), (0.0, 61.0), (None, 60_000_000))
    (50, 50)
    """
    if not quiet:
        return marks
    silent = [limit is not None and lasted * 1e6 >= limit for lasted, limit in zip(quiet, idle)]
    awake = [mark for mark, asleep in zip(marks, silent) if not asleep]
    target = min(awake) if awake else max(marks)
    return tuple(max(mark, target) if asleep else mark for mark, asleep in zip(marks, silent))


def results(operator: Operator, state: StageState) -> dict[str, int]:
    """Per result column that carries event time: what the stage will emit from now on is not older."""
    return operator.output_watermarks(
        Progress(watermarks=state.watermarks, emitted=state.emitted, owed=_owed(operator, state))
    )


def _owed(operator: Operator, state: StageState) -> Marks:
    """Per side, the oldest row that results may still come of without a new row.

    Every row of a result that is owed has a row of another generation beside it.
    """
    times: dict[int, int] = {}
    if operator.spills and any(ref.kind == "generation" for ref in state.segments):
        debts = generations.Debts(state.segments, operator.meets, state.routing.size)
        for ref in sorted(state.segments, key=lambda ref: ref.t_min):
            if ref.side not in times and debts.of(ref).any():
                times[ref.side] = ref.t_min
    return tuple(times.get(side, MAX_TIME) for side in range(operator.sides))
