"""Every Python block in the documentation runs, links and named files exist. Pages with Spark are in test_guide."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from fluxen.engine.explain import explained
from fluxen.engine.options import AdaptOptions
from tests.docs import test_guide
from tests.docs.pages import ROOT, blocks, links, pages, run, text_of

PAGES = [
    "docs/dashboard.md",
    "docs/mechanisms/aggregation.md",
    "docs/mechanisms/join.md",
    "docs/mechanisms/moving-state.md",
    "docs/mechanisms/operators.md",
    "docs/mechanisms/partitioning.md",
    "docs/mechanisms/replanning.md",
    "docs/mechanisms/skew-buffer.md",
    "docs/mechanisms/state.md",
    "docs/mechanisms/together.md",
    "docs/mechanisms/watermarks.md",
]
CONNECTORS = {f"docs/connectors/{name}.md" for name in ("delta", "iceberg", "kafka")}
ELSEWHERE = {"docs/mechanisms/policies.md", "docs/mechanisms/scale.md", *CONNECTORS}
"""run by tests/sim/test_docs.py and tests/connectors/test_pages.py"""
SITE = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))


def test_every_page_with_an_example_is_run_by_a_test() -> None:
    assert pages() == {*PAGES, *ELSEWHERE, *test_guide.PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page_give_what_they_say(page: str) -> None:
    run(page, {})


@pytest.mark.parametrize("page", ["docs/your-query.md", "docs/tutorial-auctions.md"])
def test_pages_show_the_options_of_a_query_as_explain_does(page: str) -> None:
    shown = [line for line in text_of(page).splitlines() if line.startswith("fluxen: ")]
    assert shown == [explained(AdaptOptions(), [])]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *SITE])
def test_links_inside_the_repository_lead_somewhere(page: str) -> None:
    for target in links(page):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/papers.md"])
def test_files_a_page_names_exist(page: str) -> None:
    folders = [path.name for path in (ROOT / "src" / "fluxen").iterdir() if path.is_dir()]
    named = re.findall(rf"`((?:{'|'.join(folders)})/[\w/]+\.py)`", text_of(page))
    assert len(named) > 10
    for name in named:
        assert (ROOT / "src" / "fluxen" / name).exists(), name


def test_the_page_on_the_papers_names_every_figure_and_every_policy_and_partitioner() -> None:
    from fluxen.partitioning.registry import PARTITIONERS
    from fluxen.policies.registry import POLICIES
    from fluxen_lab.figures.figure import figure_names

    text = text_of("docs/papers.md")
    named = set(re.findall(r"`fluxen figure (\S+)`", text)) - {"--list", "--all"}
    assert named <= set(figure_names())
    ours = {"liu07/drift", "gedik/loads", "gedik/slotted"}
    assert set(figure_names()) - ours <= named
    baselines = {"Static", "Random", "Auto", "UniformHash", "ConsistentHash"}
    for member in (*POLICIES.members.values(), *PARTITIONERS.members.values()):
        assert member.__name__ in baselines or f"fx.{member.__name__}" in text, member


@pytest.mark.spark
def test_the_readme_runs(spark: Any, tmp_path: Path) -> None:
    (code,) = blocks("README.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    runpy.run_path(str(ROOT / "examples" / "cheapest_brokers.py"))["write_offers"](tmp_path / "offers")
    # Spark resolves relative paths from where it was started, which is not this test's directory
    for name in ("offers/", "checkpoint", "cheapest"):
        assert f'"{name}"' in code
        code = code.replace(f'"{name}"', f'"{tmp_path}/{name}"')
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    found = spark.read.parquet(str(tmp_path / "cheapest")).collect()
    assert {row.bank1_broker for row in found} == {f"broker-{number}" for number in range(5)}
