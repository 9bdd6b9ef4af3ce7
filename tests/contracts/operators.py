"""The contract of an operator: whatever its traits allow may happen to it, and its results equal the oracle's.

`tests/contracts/test_operators.py` runs it over every operator of the registry, `tests/spark/test_own_operator.py` over
one that is defined there. To put an operator under contract, say how a `Case` for it is made from a seed, and call
`check_traits`, `check_times`, and `check_results` for each of `trials(operator)`.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import Phase, given
from hypothesis import strategies as st

import fluxen.testing as ft
from fluxen.arrays import MAX_TIME, MIN_TIME
from fluxen.control import watermarks as marks
from fluxen.control.memory import spilling
from fluxen.operators.base import Operator
from fluxen.partitioning import Resources
from fluxen.state.epoch import StageState
from fluxen.testing import oracle
from tests.cases import SECOND, TIME, Case
from tests.effort import examples
from tests.histories import Histories, replay

SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
LATENESS = 2 * SECOND
Maker = Callable[[int], Case]
"""A case from a seed: an even one is punctual, of an odd one some rows are late."""


def dense(seed: int, inputs: int = 1, *, keys: int = 5, batches: int = 7, rows: int = 9) -> list[list[pa.Table]]:
    """A second of event time per batch, out of order by up to `LATENESS`, or by more if the seed is odd."""
    rng = np.random.default_rng(seed)
    early = LATENESS if seed % 2 == 0 else 3 * LATENESS

    def table(number: int) -> pa.Table:
        k = pa.array(rng.integers(0, keys, rows))
        ts = pa.array(number * SECOND - rng.integers(0, early, rows)).cast(TIME)
        return pa.table([k, ts, pa.array(rng.integers(0, 20, rows))], schema=SCHEMA)

    return [[table(number) for _ in range(inputs)] for number in range(batches)]


def case_of(
    stage: ft.LocalStage,
    batches: list[list[pa.Table]],
    expected: Callable[[], list[dict[str, Any]]],
    *,
    ends: bool = False,
) -> Case:
    def query(streams: list[Any]) -> Any:
        raise NotImplementedError("these run in process only")

    return Case([stage], batches, expected, query, ends)


def operator_of(make: Maker) -> Operator:
    return make(0).stages[0].stage.operator


def having(make: Maker, change: Callable[[Any], Operator]) -> Maker:
    """The same cases with another operator in place of the first stage's."""

    def changed(seed: int) -> Case:
        case = make(seed)
        first, *rest = case.stages
        stage = replace(first, stage=replace(first.stage, operator=change(first.stage.operator)))
        return replace(case, stages=[stage, *rest])

    return changed


# ---- what may happen to it


class Calm(Histories):
    """Nothing but merges."""

    routes = ("none",)
    changes = ("none",)

    def crash(self) -> int | None:
        return None

    def repeat(self) -> int:
        return 1

    def buffer(self) -> dict[str, Any]:
        return {}

    def memory(self) -> int | None:
        return None


class Moves(Calm):
    routes = ("move",)


class Rescales(Calm):
    routes = ("rescale",)


class Isolates(Calm):
    routes = ("isolate", "isolate", "return")


class Deals(Calm):
    """Keys dealt over several sites and together again, while sites come and go and the process dies anywhere."""

    routes = ("none", "none", "move", "rescale")
    changes = ("none", "deal", "deal", "deal")

    def crash(self) -> int | None:
        return Histories.crash(self)


class Rotates(Calm):
    def memory(self) -> int | None:
        return self.data.draw(st.sampled_from([1, 3_000]), label="memory of a site")


class Replans(Calm):
    routes = ("none", "none", "move")
    changes = ("replan",)


class Tracks(Calm):
    changes = ("track", "both")


class Buffers(Calm):
    def buffer(self) -> dict[str, Any]:
        return Histories.buffer(self)


class Crashes(Calm):
    def crash(self) -> int | None:
        return Histories.crash(self)

    def repeat(self) -> int:
        return Histories.repeat(self)


class Flushes(Calm):
    """An epoch without rows after each batch, of which nothing comes unless the operator says so."""

    def after(self, bench: ft.LocalEngine) -> None:
        operator = bench.stages[0].stage.operator
        results = bench.flush()
        assert operator.flushes or results.num_rows == 0, f"{type(operator).__name__} has results without rows"


@dataclass(frozen=True, kw_only=True)
class Trial:
    history: type[Histories]
    applies: Callable[[Operator], bool] = lambda operator: True
    spills: bool = False


TRIALS = {
    "moves": Trial(history=Moves),
    "rescales": Trial(history=Rescales),
    "isolated keys": Trial(history=Isolates, applies=lambda operator: operator.divisible),
    "dealt keys": Trial(history=Deals, applies=lambda operator: bool(operator.deals)),
    "spills": Trial(history=Calm, applies=lambda operator: operator.spills, spills=True),
    "turns in memory": Trial(history=Rotates, applies=lambda operator: not operator.spills),
    "replans": Trial(history=Replans, applies=lambda operator: operator.plans is not None),
    "parallel tracks": Trial(history=Tracks, applies=lambda operator: operator.lifetime() is not None),
    "skew buffers": Trial(history=Buffers),
    "crashes": Trial(history=Crashes),
    "flushes": Trial(history=Flushes),
    "all at once": Trial(history=Histories),
    "all at once, and spills": Trial(history=Histories, applies=lambda operator: operator.spills, spills=True),
}


def trials(operator: Operator) -> list[str]:
    """Those that the operator's traits allow."""
    return [name for name, trial in TRIALS.items() if trial.applies(operator)]


# ---- the checks


def check_results(make: Maker, trial: str, count: int = 4) -> None:
    """`count` random histories of one kind: the results are the oracle's, whatever happened."""
    chosen = TRIALS[trial]

    @examples(count, phases=[Phase.generate], database=None)
    @given(seed=st.integers(0, 1000), data=st.data())
    def run(seed: int, data: Any) -> None:
        case = make(seed) if seed % 4 < 2 else _with_one_hash(make(seed))
        divisible = case.stages[0].stage.operator.divisible
        with tempfile.TemporaryDirectory() as directory:
            results = replay(case, chosen.history(data), directory, can_isolate=divisible, spills=chosen.spills)
        assert results == case.expected()

    run()


def _with_one_hash(case: Case) -> Case:
    """The same rows as Spark lays them out where the first hash tells keys apart."""
    first, *rest = case.stages
    encode = first.encode
    return replace(case, stages=[replace(first, encode=lambda n, rows: replace(encode(n, rows), h2=None)), *rest])


def check_traits(operator: Operator) -> None:
    """What it says about itself makes sense, and it can travel."""
    assert json.loads(json.dumps(operator.identity())) == operator.identity()
    assert operator.identity()["operator"]
    assert pickle.loads(pickle.dumps(operator)).identity() == operator.identity()
    marks_ = (5 * SECOND,) * operator.inputs
    assert len(operator.horizons(marks_, marks_)) == operator.sides >= 1
    assert operator.emits in ("append", "update")
    assert not operator.result_key or operator.emits == "update"
    assert operator.division in ("results", "windows", "keys")
    assert isinstance(operator.resources, Resources)
    assert set(operator.deals) <= set(range(operator.inputs))
    assert operator.divisible or not operator.deals
    assert operator.deals or operator.whole
    assert all(dealt in operator.dealt_sides(dealt) for dealt in operator.deals)
    life = operator.lifetime()
    assert life is None or life > 0
    assert all(isinstance(line, str) for line in operator.keeps("event time"))
    if operator.plans is not None:
        assert len(operator.plans.names) == operator.inputs
        assert sorted(operator.plans.sides.values()) == list(range(operator.sides))


def check_times(make: Maker, seeds: int = 6) -> None:
    """No result lies below what was said before its batch, rows being punctual."""
    for seed in range(0, 2 * seeds, 2):
        case, rng = make(seed), np.random.default_rng(seed)
        operator = case.stages[0].stage.operator

        def change(_: int, state: StageState, epoch: int, rng: Any = rng, spills: bool = operator.spills) -> StageState:
            groups = rng.choice(state.routing.size, size=2, replace=False).tolist()
            act = rng.choice([spilling.spill, spilling.cleanup, spilling.unspill]) if spills else None
            if act is None:
                return state
            return act(state, groups, epoch) if act is spilling.spill else act(state, groups)

        with tempfile.TemporaryDirectory() as directory:
            bench = ft.LocalEngine(case.stages, directory, sites=2, partitions=4)
            for number, inputs in enumerate(case.batches):
                _promised(bench, partial(bench.step, number, inputs, change=change))
            _promised(bench, bench.flush)
            _promised(bench, bench.cleanup)


def _promised(bench: ft.LocalEngine, step: Callable[[], pa.Table]) -> None:
    bounds = marks.results(bench.stages[0].stage.operator, bench.epoch.stages[0])
    results = step()
    for name, bound in bounds.items():
        assert MIN_TIME <= bound <= MAX_TIME
        column, *inner = name.split(".")  # a window's times are fields of it
        values = pc.struct_field(results.column(column), inner) if inner else results.column(column)
        times = [oracle.micros(value) for value in values.to_pylist() if value is not None]
        assert all(time is not None and time >= bound for time in times), f"a {name} lies below {bound}"
