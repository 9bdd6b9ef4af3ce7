"""What a notebook shows: a table without markup of others, and a figure of the whole run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fluxen.dashboard import notebook
from fluxen.dashboard.plot import timeline
from fluxen.dashboard.source import Source
from fluxen.errors import ConfigError, PlatformError
from fluxen.state.store import Store
from tests.dashboard.queries import Spilling


@pytest.fixture(scope="module")
def source(tmp_path_factory: Any) -> Source:
    directory: Path = tmp_path_factory.mktemp("notebook") / "checkpoint"
    query = Spilling(directory, "<img src=x onerror=alert(1)>")
    for _ in range(8):
        query.step()
    query.engine.close()
    return Source(Store(str(directory)))


def test_the_table_shows_every_site_and_only_our_own_markup(source):
    shown = notebook.table(source)
    assert shown.count("<tr>") == 2 + 1 + 4
    assert "8,000" in shown
    tags = {"div", "b", "small", "table", "thead", "tbody", "tr", "th", "td"}
    assert set(re.findall(r"</?(\w+)", shown)) <= tags
    assert "<Img" not in notebook.text(source)


def test_a_run_without_an_epoch_says_so(tmp_path):
    empty = Source(Store(str(tmp_path)), "q")
    assert "no epoch yet" in notebook.table(empty)
    assert notebook.text(empty) == "q: empty, no epoch yet"
    with pytest.raises(ConfigError, match="nothing to draw"):
        timeline(empty)


def test_the_plot_has_the_whole_run_and_its_adaptations(source, monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    figure = timeline(source)
    rows, phases, balance, state = figure.axes
    assert len(rows.lines[0].get_xdata()) == 8
    assert {text.get_text() for text in state.get_legend().get_texts()} == {"memory", "on disk"}
    assert "spill" in {text.get_text() for text in balance.get_legend().get_texts()}
    assert len(phases.collections) == 4


def test_without_matplotlib_one_line_says_how_to_get_it(source, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(PlatformError, match="pip install matplotlib"):
        timeline(source)
