"""What `pip install fluxen` brings: the product alone. Benchmarks, figures, emulation and generators are in lab/."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
FORBIDDEN = re.compile(r"bench|figure|emulat|datagen|workload|soak|paced|distant|fake_data|generator")
LIBRARIES = {"matplotlib", "scipy", "duckdb", "hypothesis", "pytest", "fluxen_lab"}
"""What only the laboratory and the tests need."""
DEMO = "fluxen/cli/offers.py"
"""The demo's data, the only rows that the package makes up."""


def project(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def wheel(path: str) -> dict[str, Any]:
    """How a project's wheel is put together."""
    settings: dict[str, Any] = project(path)["tool"]["hatch"]["build"]["targets"]["wheel"]
    return settings


def packaged(path: str) -> list[Path]:
    """The files that the wheel of a project gets."""
    (root,) = wheel(path)["packages"]
    below = (ROOT / path).parent / root
    return sorted(file for file in below.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def imported(path: Path) -> set[str]:
    """The top-level packages that a module names in an import, wherever in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


def test_the_package_is_src_fluxen_and_nothing_else() -> None:
    assert project("pyproject.toml")["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/fluxen"]}
    assert project("lab/pyproject.toml")["tool"]["hatch"]["build"]["targets"]["wheel"] == {
        "packages": ["src/fluxen_lab"]
    }


def test_no_module_of_the_package_belongs_to_the_laboratory() -> None:
    names = [file.relative_to(ROOT / "src").as_posix() for file in packaged("pyproject.toml")]
    assert "fluxen/cli/main.py" in names
    assert [name for name in names if FORBIDDEN.search(name)] == []
    others = [name for name in names if not name.endswith((".py", "/py.typed"))]
    assert [name for name in others if not name.startswith("fluxen/dashboard/assets/")] == []


def test_the_page_brings_everything_it_loads_with_the_licence_of_what_is_not_ours() -> None:
    assets = ROOT / "src/fluxen/dashboard/assets"
    ours = [file for file in assets.iterdir() if file.is_file()]
    for file in ours:
        text = file.read_text(encoding="utf-8")
        assert (
            re.findall(r"(?:https?:)?//[\w-]+\.\w+[^\s\"']*", text.replace("http://www.w3.org/2000/svg", "")) == []
        ), file.name
        for name in re.findall(r"""(?:from|src=|href=)\s*["'](?!#)(?:\./)?([^"']+)["']""", text):
            assert (assets / name).is_file(), f"{file.name} loads {name}"
    assert sorted(file.name for file in (assets / "vendor").iterdir()) == [
        "uPlot.LICENSE.txt",
        "uPlot.esm.js",
        "uPlot.min.css",
    ]


def test_the_package_imports_nothing_of_the_laboratory() -> None:
    modules = [file for file in packaged("pyproject.toml") if file.suffix == ".py"]
    assert {str(path): imported(path) & LIBRARIES for path in modules if imported(path) & LIBRARIES} == {}


def test_only_the_demo_makes_rows_up() -> None:
    """A generator draws numbers and puts them into tables."""
    made = [
        file.relative_to(ROOT / "src").as_posix()
        for file in packaged("pyproject.toml")
        if file.suffix == ".py" and "default_rng" in file.read_text(encoding="utf-8") and "pyarrow" in imported(file)
    ]
    assert made == [DEMO]


def test_the_laboratory_brings_what_the_command_line_expects() -> None:
    from fluxen.cli.main import LABORATORY

    found = project("lab/pyproject.toml")["project"]["entry-points"]["fluxen.commands"]
    assert sorted(found) == sorted(LABORATORY)
    files = [file.relative_to(ROOT / "lab/src").as_posix() for file in packaged("lab/pyproject.toml")]
    for module in found.values():
        assert f"{module.replace('.', '/')}.py" in files


@pytest.mark.parametrize("module", ["fluxen", "fluxen_lab"])
def test_what_a_module_imports_is_declared(module: str) -> None:
    """Each distribution names the libraries it uses itself; the standard library and its own modules aside."""
    path = "pyproject.toml" if module == "fluxen" else "lab/pyproject.toml"
    required = {re.split(r"[^\w-]", line)[0].replace("-", "_") for line in project(path)["project"]["dependencies"]}
    extras = project("pyproject.toml")["project"]["optional-dependencies"]
    required |= {re.split(r"[^\w-]", line)[0].replace("-", "_") for line in extras["kafka"]}
    if module == "fluxen_lab":
        required |= {re.split(r"[^\w-]", line)[0] for line in project("pyproject.toml")["project"]["dependencies"]}
    used = {name for file in packaged(path) if file.suffix == ".py" for name in imported(file)}
    assert used - set(sys.stdlib_module_names) - required - {module, "py4j", "tomllib"} == set()
