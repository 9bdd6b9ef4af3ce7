"""The sizes of the house: short files, short functions, few parameters; and operators known by their traits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import fluxen
from fluxen import testing

ROOT = Path(__file__).parents[2]
FILES = sorted(path for part in ("src", "lab/src", "tests", "examples") for path in (ROOT / part).rglob("*.py"))
LINES, FUNCTION, PARAMETERS = 400, 60, 8
WORDS = {*fluxen.__all__, *testing.__all__}
"""The public words, whose parameters are options spelled out; methods of a Query and constructors are among them."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function below a node, by its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield inside + child.name, child
        named = isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        yield from functions(child, f"{inside}{child.name}." if named else inside)  # type: ignore[attr-defined]


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without `self`; `*args` and `**kwargs` count as one each."""
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    receiver = names[:1] in (["self"], ["cls"])
    return len(names) - receiver + len(given.kwonlyargs) + bool(given.vararg) + bool(given.kwarg)


def public(path: str, name: str) -> bool:
    return path.startswith("src/fluxen/") and (name.removesuffix(".__init__") in WORDS or name.startswith("Query."))


def every_function() -> Iterator[tuple[str, str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in FILES:
        for name, function in functions(tree(path)):
            yield str(path.relative_to(ROOT)), name, function


def none(offenders: list[str]) -> None:
    assert not offenders, "\n" + "\n".join(offenders)


def test_no_file_is_longer_than_400_lines() -> None:
    lines = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    none([f"{path}: {count} lines" for path, count in lines.items() if count > LINES])


def test_no_function_is_longer_than_60_lines() -> None:
    lines = [(path, name, (f.end_lineno or f.lineno) - f.lineno + 1) for path, name, f in every_function()]
    none([f"{path}: {name} has {count} lines" for path, name, count in lines if count > FUNCTION])


def test_no_function_but_the_public_words_has_more_than_8_parameters() -> None:
    counts = [(path, name, parameters(function)) for path, name, function in every_function()]
    none(
        [
            f"{path}: {name} has {count} parameters"
            for path, name, count in counts
            if count > PARAMETERS and not public(path, name)
        ]
    )


def operator_classes() -> set[str]:
    """Classes in operators/ that process batches or describe a trait, and what derives from them."""
    classes = [
        (path, node)
        for path in FILES
        if "fluxen/operators/" in path.as_posix()
        for node in tree(path).body
        if isinstance(node, ast.ClassDef)
    ]
    bases = {node.name: {ast.unparse(base) for base in node.bases} for _, node in classes}
    found = {
        node.name
        for path, node in classes
        if any(name == "process" for name, _ in functions(node))
        or (path.name == "base.py" and "Protocol" in bases[node.name])
    }
    found -= {"GroupOperator"}  # what a user's own code is checked for, not an operator of the engine
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def classes_asked_for(path: Path) -> Iterator[tuple[int, str]]:
    """Every class that a file tests an object for, with the line."""
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked: Iterator[ast.AST] = ast.walk(node.args[1])
        elif isinstance(node, ast.MatchClass):
            asked = iter([node.cls])
        else:
            continue
        for name in asked:
            if isinstance(name, (ast.Name, ast.Attribute)):
                yield name.lineno, name.id if isinstance(name, ast.Name) else name.attr


def test_nobody_outside_operators_asks_for_the_class_of_one() -> None:
    operators = operator_classes()
    assert {"Join", "TreeJoin", "Operator"} <= operators
    none(
        [
            f"{path.relative_to(ROOT)}:{line}: asks for {name}; ask for a trait instead"
            for path in FILES
            if "src" in path.relative_to(ROOT).parts and "fluxen/operators/" not in path.as_posix()
            for line, name in classes_asked_for(path)
            if name in operators
        ]
    )


def test_what_is_too_large_would_be_found() -> None:
    body = "\n".join(["    pass"] * FUNCTION)
    module = ast.parse(f"class A:\n  def f(self, a, b, c, /, d, *e, g, h, i, **j): ...\ndef long():\n{body}\n")
    found = dict(functions(module))
    assert parameters(found["A.f"]) == PARAMETERS + 1
    assert (found["long"].end_lineno or 0) - found["long"].lineno + 1 == FUNCTION + 1
