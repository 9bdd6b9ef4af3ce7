"""The public names, exactly: adding or removing one is a decision, and shows up here."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import fluxen
from fluxen import errors

NAMES = {
    "session",
    "join",
    "aggregate",
    "distinct",
    "top",
    "union",
    "stateful",
    "Query",
    "Run",
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "stddev",
    "stddev_pop",
    "variance",
    "var_pop",
    "min_by",
    "max_by",
    "collect_list",
    "collect_set",
    "bool_and",
    "bool_or",
    "first",
    "last",
    "Policy",
    "Operator",
    "Partitioner",
    "Optimizer",
    "Static",
    "Random",
    "FluxLoad",
    "FluxMemory",
    "FluxHybrid",
    "LocalDisk",
    "LazyDisk",
    "ActiveDisk",
    "Auto",
    "RiverDQ",
    "ForecastDisk",
    "UniformHash",
    "ConsistentHash",
    "Scan",
    "Redist",
    "Readj",
    "Slotted",
    "Listener",
    "JsonFormatter",
    "add_listener",
    "remove_listener",
    "FluxenError",
    "query",
    "explain",
    "__version__",
}


def test_exported_names_are_exactly_these() -> None:
    assert set(fluxen.__all__) == NAMES
    assert set(dir(fluxen)) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES - {"__version__"}))
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    thing = getattr(fluxen, name)
    assert inspect.getdoc(thing)
    assert thing.__name__ == name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = fluxen.nonsense


def test_names_for_type_checkers_are_the_same() -> None:
    source = inspect.getsource(fluxen)
    shown = {line.split()[-1] for line in source.splitlines() if line.strip().startswith("from fluxen.")}
    assert shown == NAMES - {"__version__"}


def test_importing_fluxen_imports_neither_pyspark_nor_numpy() -> None:
    code = "import fluxen, sys; print(sorted({'pyspark', 'numpy', 'pyarrow', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_error_derives_from_one() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.FluxenError)
        assert getattr(errors, name).__doc__


def test_methods_of_a_run_are_those_of_a_streaming_query_and_ours() -> None:
    public = {name for name in vars(fluxen.Run) if not name.startswith("_")}
    spark = {
        "id",
        "isActive",
        "status",
        "recentProgress",
        "lastProgress",
        "exception",
        "awaitTermination",
        "processAllAvailable",
        "stop",
        "start",
    }
    assert spark <= public
    assert {"epoch", "epochs", "events", "rescale", "dashboard", "plot"} <= public
