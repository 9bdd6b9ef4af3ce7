"""Members of a family by name: what `adapt()`, query files, the simulator and the contract tests all read.

Each family has its own `registry.py`, with one line per member. A member that is not listed, such as a policy in a
user's own module, is named by its path.

>>> from fractions import Fraction
>>> numbers = Registry(what="number", base=Fraction, members={"common-fraction": Fraction})
>>> numbers.make({"name": "CommonFraction", "numerator": 3})
Fraction(3, 1)
>>> numbers.find("fractions:Fraction")
<class 'fractions.Fraction'>
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from typing import Any, Generic, Literal, TypeVar

from fluxen.errors import ConfigError

__all__ = ["Registry"]

M = TypeVar("M")
_PATH = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


@dataclass(frozen=True, kw_only=True)
class Registry(Generic[M]):
    """The members of one family."""

    what: str
    """what one of them is called in messages"""
    base: type[M]
    """what all of them derive from"""
    members: Mapping[str, type[M]]

    def find(self, name: str) -> type[M]:
        """The class of a name: `flux-load`, `flux_load` and `FluxLoad` are one; `package.module:Class` is a path."""
        path = _PATH.fullmatch(name)
        found: Any = (
            self._at(*path.groups()) if path else {_plain(k): v for k, v in self.members.items()}.get(_plain(name))
        )
        if found is None:
            raise ConfigError(
                f"{self.what} {name!r} is not known; there are: {', '.join(self.members)}; one of your own is named by "
                "its path, as in 'my_package.my_module:MyClass'"
            )
        return typing.cast("type[M]", found)

    def make(self, given: Any) -> M:
        """The member that a user means: an object, a class, a name, or a mapping with a name and settings."""
        settings: dict[str, Any] = {}
        if isinstance(given, Mapping):
            settings = {str(key): value for key, value in given.items()}
            given = settings.pop("name", None)
            if given is None:
                first = next(iter(self.members), "...")
                raise ConfigError(f"{self.what} needs a name beside its settings, such as name = {first!r}")
        if isinstance(given, str):
            given = self.find(given)
        if inspect.isclass(given) and issubclass(given, self.base):
            return self._made(given, settings)
        if not isinstance(given, self.base) or settings:
            raise ConfigError(
                f"{self.what} must be a name, such as {next(iter(self.members), '...')!r}, or derive from "
                f"fluxen.{self.base.__name__}; got {given!r}"
            )
        return given

    def _at(self, module: str, name: str) -> type[M]:
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"{self.what} '{module}:{name}' cannot be loaded: {error}") from error
        if not inspect.isclass(found) or not issubclass(found, self.base):
            raise ConfigError(
                f"{self.what} '{module}:{name}' is not a class that derives from fluxen.{self.base.__name__}"
            )
        return found

    def _made(self, kind: type[M], settings: Mapping[str, Any]) -> M:
        known = inspect.signature(kind).parameters
        hints = _hints(kind)
        for name, value in settings.items():
            if name not in known:
                raise ConfigError(f"{self.what} {kind.__name__} has no setting {name!r}; there are: {', '.join(known)}")
            if name in hints and not _fits(value, hints[name]):
                raise ConfigError(f"{self.what} {kind.__name__}: {name} must be {_said(hints[name])}, got {value!r}")
        try:
            return kind(**settings)
        except TypeError as error:  # a setting that has no default, or a class that is still abstract
            raise ConfigError(f"{self.what} {kind.__name__} cannot be made: {error}") from error


def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of a class's settings, as far as they are known at run time."""
    try:
        return typing.get_type_hints(kind if is_dataclass(kind) else kind.__init__)
    except NameError:  # a name that only type checkers import
        return {}


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value from a file may be what a parameter is annotated with; what cannot be told may."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return value in typing.get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return not inspect.isclass(hint) or isinstance(value, hint)


def _said(hint: Any) -> str:
    """A type as people say it.

    >>> _said(float | Literal["auto"] | None)
    "a number, 'auto' or None"
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        *most, last = map(_said, typing.get_args(hint))
        return f"{', '.join(most)} or {last}"
    if typing.get_origin(hint) is Literal:
        return ", ".join(map(repr, typing.get_args(hint)))
    plain = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", type(None): "None"}
    return plain.get(hint) or (hint.__name__ if inspect.isclass(hint) else str(hint))
