"""How `make docs` builds the documentation: Sphinx over the same Markdown files that a code host shows."""

from __future__ import annotations

import re
from typing import Any

import fluxen

project = "fluxen"
release = version = fluxen.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"fluxen {release}"
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 4
default_role = "code"  # docstrings name code in single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88

_SETTING = re.compile(r"(?P<name>\S.*?) {2,}(?P<text>\S.*)")


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _settings)


def _settings(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the lists of settings in docstrings, `name  what it means`, into definitions."""
    found: list[str] = []
    listing = literal = False
    for line in lines:
        literal = line.endswith("::") or (literal and (not line or line.startswith(" ")))
        row = None if literal or line.startswith((">>>", "...")) else _SETTING.fullmatch(line)
        if row:
            found += [] if listing else [""]
            found += [f"``{row['name']}``", f"    {row['text']}"]
        elif listing and line.startswith("    "):
            found.append(f"    {line.strip()}")
        else:
            found += ["", line] if listing else [line]
        listing = row is not None or (listing and line.startswith("    "))
    lines[:] = found
