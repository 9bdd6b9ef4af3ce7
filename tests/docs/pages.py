"""How the tests read a page: its blocks of a language, its links, and a run of its Python from top to bottom."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str = "python") -> list[str]:
    return [body for kind, body in _BLOCK.findall(text_of(page)) if kind == language]


def pages(language: str = "python") -> set[str]:
    """Pages in docs/ that have a block of a language."""
    found = (str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))
    return {page for page in found if blocks(page, language)}


def links(page: str) -> list[str]:
    """Targets of a page's links that are files of this repository, without what follows a #."""
    found = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text_of(page))
    return [target for target in found if "://" not in target]


def run(page: str, names: dict[str, Any], place: Path | None = None) -> dict[str, Any]:
    """Run a page's Python: a block with prompts as a doctest, one without as a script; gives the names there are then.

    What the page keeps in a directory `data` or `cheapest` is below `place`: Spark's idea of the working directory is
    the one it was started in.
    """
    for number, body in enumerate(blocks(page)):
        if place is not None:
            body = re.sub(r'"(data|cheapest)/', rf'"{place}/\1/', body)
        if ">>> " not in body:
            exec(compile(body, f"{page}[{number}]", "exec"), names)
            continue
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
        found = doctest.DocTestParser().get_doctest(body, names, f"{page}[{number}]", page, 0)
        said: list[str] = []
        result = runner.run(found, out=said.append, clear_globs=False)
        names = found.globs
        assert result.failed == 0, "".join(said)
    return names
