"""The reference and the site: every public name is listed, the site is built without a warning and needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fluxen
from fluxen.cli.main import COMMANDS
from tests.docs.pages import ROOT, text_of


def test_the_reference_lists_every_public_name_and_every_command() -> None:
    text = text_of("docs/reference.md")
    listed = set(re.findall(r"^\.\. auto\w+:: fluxen\.(\w+)$", text, re.MULTILINE))
    assert set(fluxen.__all__) - {"__version__"} <= listed
    assert all(f"`fluxen {command}" in text for command in COMMANDS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    pytest.importorskip("sphinx")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(place / "trees")]
    done = subprocess.run([*command, str(ROOT / "docs"), str(place / "html")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "html"


def test_every_page_is_built_and_the_start_page_leads_to_it(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    for path in ROOT.glob("docs/**/*.md"):
        page = path.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / page).exists()
        assert page == "index.html" or f'href="{page}"' in start, f"no way leads from the start page to {page}"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loading = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["'](?:https?:)?//[^"']+["'][^>]*>""")
    styles = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not loading.search(text), (page, loading.search(text))
    for sheet in site.rglob("*.css"):
        assert not styles.search(sheet.read_text(encoding="utf-8")), sheet


def test_the_reference_has_the_examples_of_the_docstrings(site: Path) -> None:
    text = (site / "reference.html").read_text(encoding="utf-8")
    assert 'id="fluxen.join"' in text
    assert "15 minutes" in text
    assert "<code" in text
    assert "no docstring" not in text
