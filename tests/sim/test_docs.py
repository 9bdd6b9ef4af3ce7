"""The examples on the documentation pages of policies and scale run as printed."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "mechanisms"


@pytest.mark.parametrize("page", ["policies.md", "scale.md"])
def test_examples_on_the_page_give_what_it_says(page: str) -> None:
    result = doctest.testfile(str(PAGES / page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0
