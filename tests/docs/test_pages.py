"""Every Python block of the pages below runs: as a doctest where it has prompts, as a script where it has none."""

from __future__ import annotations

import doctest
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    "docs/architecture.md",
    "docs/dashboard.md",
    "docs/mechanisms/aggregation.md",
    "docs/mechanisms/join.md",
    "docs/mechanisms/moving-state.md",
    "docs/mechanisms/operators.md",
    "docs/mechanisms/replanning.md",
    "docs/mechanisms/skew-buffer.md",
    "docs/mechanisms/state.md",
    "docs/mechanisms/watermarks.md",
]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str = "python") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [body for kind, body in _BLOCK.findall(text) if kind == language]


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page_give_what_they_say(page: str) -> None:
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    for number, body in enumerate(blocks(page)):
        found = doctest.DocTestParser().get_doctest(body, names, f"{page}[{number}]", page, 0)
        said: list[str] = []
        result = runner.run(found, out=said.append, clear_globs=False)
        names = found.globs
        assert result.failed == 0, "".join(said)


@pytest.mark.parametrize(
    "page",
    [
        str(path.relative_to(ROOT))
        for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    ],
)
def test_links_inside_the_repository_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", (ROOT / page).read_text(encoding="utf-8")):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("page", ["docs/architecture.md"])
def test_files_a_page_names_exist(page: str) -> None:
    named = re.findall(
        r"`((?:state|operators|control|spark|policies|cli|testing)/[\w/]+\.py)`", (ROOT / page).read_text()
    )
    assert named
    for name in named:
        assert (ROOT / "src" / "fluxen" / name).exists(), name


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
