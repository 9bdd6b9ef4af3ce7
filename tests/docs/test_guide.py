"""The pages that need Spark run from top to bottom, in one session; so do the examples in docstrings."""

from __future__ import annotations

import inspect
import runpy
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.cli.main import main
from fluxen.testing import feed
from tests.docs.pages import ROOT, blocks, pages, run, text_of

pytestmark = pytest.mark.spark
GUIDE = [f"docs/guide/{name}.md" for name in ("joining", "aggregating", "adapting", "memory", "scaling", "sinks")]
START = "docs/guide/index.md"
PAGES = [
    START,
    *GUIDE,
    "docs/from-structured-streaming.md",
    "docs/mechanisms/spilling.md",
    "docs/quick-start.md",
    "docs/tutorial-auctions.md",
]


@pytest.fixture(scope="module")
def streams(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that the guide's first page makes; its helper keeps checkpoints below `place`."""
    place = tmp_path_factory.mktemp("guide")
    return {"place": place, **run(START, {}, place)}


@pytest.mark.parametrize("page", GUIDE)
def test_a_page_of_the_guide_runs(page: str, streams: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run(page, dict(streams), streams["place"])


def commands(page: str) -> list[list[str]]:
    """The lines of a page's bash blocks, which are calls of fluxen."""
    return [shlex.split(line) for body in blocks(page, "bash") for line in body.splitlines()]


def test_the_quick_start_runs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, *words in commands("docs/quick-start.md"):
        assert command == "fluxen"
        assert main(words) == 0, words
    run("docs/quick-start.md", {}, tmp_path)
    assert "stage 1 (join)" in capsys.readouterr().out


def test_no_other_page_has_commands_that_nobody_runs() -> None:
    assert pages("bash") == {"docs/quick-start.md"}


def test_coming_from_structured_streaming(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data" / "clicks").mkdir(parents=True)
    run("docs/from-structured-streaming.md", {"spark": spark}, tmp_path)
    assert "stage 1" in capsys.readouterr().out


def test_the_tutorial_balances_the_hot_auction(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("docs/tutorial-auctions.md", {}, tmp_path)
    assert max(names["last"]) < max(names["first"])
    assert "repartition" in capsys.readouterr().out


def test_the_query_of_the_page_on_spilling(streams: dict[str, Any]) -> None:
    clicks = streams["clicks"].withColumnRenamed("user", "key")
    names = run("docs/mechanisms/spilling.md", {"fx": fx, "A": clicks, "B": clicks, "C": clicks})
    assert names["query"].options.policy is not None


def test_going_back_one_epoch_as_the_page_on_operating_says(
    spark: Any, collected: Any, drain: Any, tmp_path: Path
) -> None:
    (line,) = [line for line in text_of("docs/operating.md").splitlines() if line.startswith("rm ")]
    assert line == "rm checkpoint/epochs/0000000041.json checkpoint/spark/commits/40"
    tables = [pa.table({"k": [1, batch]}) for batch in range(3)]

    def query(batches: int) -> Any:
        return fx.aggregate(feed(spark, tables[:batches], tmp_path / "input"), by="k", n=fx.count())

    newest = drain(query(2), collected).epochs[-1]
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / f"epochs/{newest['epoch']:010d}.json").unlink()
    with pytest.raises(fx.FluxenError, match="epoch files are missing"):
        drain(query(3), collected)
    (checkpoint / f"spark/commits/{newest['batch']}").unlink()
    (checkpoint / "spark/offsets/2").unlink()  # of the start that was refused
    drain(query(3), collected)  # the sink refuses other results under a number it knows
    assert collected.calls == [0, 1, 1, 2]
    assert {row["k"]: row["n"] for row in collected.rows} == {0: 1, 1: 4, 2: 1}


# ---- docstrings


def documented() -> dict[str, Any]:
    """Every public name, and the words of a query, with what has its docstring."""
    names = {name: getattr(fx, name) for name in fx.__all__ if name != "__version__"}
    words = ("select", "where", "withColumn", "aggregate", "distinct", "union", "top", "adapt", "writeStream")
    return {**names, **{f"Query.{word}": inspect.getattr_static(fx.Query, word) for word in words}}


def examples(thing: Any) -> list[str]:
    """The blocks of a docstring that follow a line `Example::`."""
    _, *parts = (inspect.getdoc(thing) or "").split("Example::\n")
    found = []
    for part in parts:
        lines = part.splitlines()
        end = next((at for at, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
        found.append(textwrap.dedent("\n".join(lines[:end])))
    return found


@pytest.mark.parametrize("name", documented())
def test_a_docstring_shows_use(name: str) -> None:
    thing = documented()[name]
    assert examples(thing) or ">>>" in (inspect.getdoc(thing) or "")


def test_examples_of_docstrings_run(streams: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    from fluxen.operators.base import SiteOutput

    own = runpy.run_path(str(ROOT / "examples" / "own_operator.py"))
    pairs = {"a": streams["clicks"], "b": streams["more_clicks"]}
    common = {
        **streams,
        "pa": pa,
        "Gaps": own["Gaps"],
        "SiteOutput": SiteOutput,
        "keep": lambda rows, epoch: rows.collect(),
        "query": fx.aggregate(streams["clicks"], by="site", n=fx.count()),
        "pairs": fx.join(pairs, on="user", time="ts", within="1 minute"),
    }
    for name, thing in documented().items():
        for body in examples(thing):
            checkpoint = str(streams["place"] / f"docstring-{name}")
            exec(compile(body, f"docstring of {name}", "exec"), {**common, "checkpoint": checkpoint})
    assert "nobody" in capsys.readouterr().out
