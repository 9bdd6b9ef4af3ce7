"""Operators that say about themselves what is not true: the contract (tests/contracts/operators.py) finds them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pytest

from fluxen.operators.aggregate.last import LastRows
from fluxen.operators.aggregate.sessions import Sessions
from fluxen.operators.aggregate.windowed import Windowed
from fluxen.operators.base import Operator, Progress
from fluxen.operators.distinct import Distinct
from fluxen.operators.join.mway import Join
from fluxen.operators.join.outer import OuterJoin
from fluxen.operators.top import Top
from fluxen.operators.user_code import Stateful
from tests.cases import SECOND
from tests.contracts.operators import LATENESS, check_results, check_times, having, operator_of, trials
from tests.contracts.test_operators import CASES, VARIANTS


def lying(base: type[Any], **lies: Any) -> Callable[[Any], Operator]:
    """An operator as the given one that says other things about itself."""
    liar = dataclass(frozen=True, kw_only=True)(type("Liar", (base,), lies))
    return lambda told: liar(**{field.name: getattr(told, field.name) for field in fields(told)})


def nothing(self: Any, sides: Any, piece_bytes: Any = None) -> Iterator[pa.Table]:
    yield from ()


def too_soon(self: Any, progress: Progress) -> dict[str, int]:
    return {"ts": progress.watermarks[0] + LATENESS}


def as_inner(self: Any, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
    return Join.horizons(self, used, following)


def never_again(self: Any, used: tuple[int, ...], following: tuple[int, ...]) -> tuple[int, ...]:
    return (following[0] + SECOND,)


LIARS = {
    "owes nothing": ("join", "spills", lying(Join, owed=nothing)),
    "spills without knowing how": ("distinct", "spills", lying(Distinct, spills=True)),
    "lets go of rows it needs": ("distinct", "moves", lying(Distinct, horizons=never_again)),
    "lets go of partners too soon": ("outer join", "moves", lying(OuterJoin, horizons=as_inner)),
    "has no end of old rows": ("last", "parallel tracks", lying(LastRows, lifetime=lambda self: 3 * SECOND)),
    "divides results, not keys": ("distinct", "parallel tracks", lying(Distinct, division="results")),
    "divides results, not windows": ("windowed", "parallel tracks", lying(Windowed, division="results")),
    "does not flush": ("windowed", "flushes", lying(Windowed, flushes=False)),
    "does not hold what waiting rows ask for": (
        "forgotten by watermark",
        "skew buffers",
        lying(Distinct, by_arrival=False),
    ),
    "forgets sessions that have not ended": ("sessions", "moves", lying(Sessions, horizons=never_again)),
    "forgets rows that count": ("top", "moves", lying(Top, horizons=never_again)),
    "deals rows whose order matters": ("distinct", "dealt keys", lying(Distinct, deals=(0,))),
    "deals rows that others ask for": ("outer join", "dealt keys", lying(OuterJoin, deals=(1,))),
    "can be divided": ("user code", "isolated keys", lying(Stateful, divisible=True)),
}


@pytest.mark.parametrize("lie", LIARS)
def test_an_operator_that_lies_about_itself_is_caught(lie: str) -> None:
    name, trial, liar = LIARS[lie]
    false = having((CASES | VARIANTS)[name], liar)
    assert trial in trials(operator_of(false))
    with pytest.raises((AssertionError, NotImplementedError)):
        check_results(false, trial, count=80)


def test_an_operator_that_promises_times_it_cannot_keep_is_caught() -> None:
    with pytest.raises(AssertionError, match="lies below"):
        check_times(having(CASES["distinct"], lying(Distinct, output_watermarks=too_soon)))
