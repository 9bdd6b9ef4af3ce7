"""Policies and partitioning functions by name: the one list that `adapt()` and query files share.

>>> type(policy("flux-load")).__name__, type(policy({"name": "FluxLoad", "imbalance": 1.5})).__name__
('FluxLoad', 'FluxLoad')
>>> type(partitioner("readj")).__name__
'Readj'
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fluxen import partitioning, policies
from fluxen.errors import ConfigError

__all__ = ["PARTITIONERS", "POLICIES", "partitioner", "policy"]

POLICIES: dict[str, type[Any]] = {
    "static": policies.Static,
    "random": policies.Random,
    "river-dq": policies.RiverDQ,
    "flux-load": policies.FluxLoad,
    "flux-memory": policies.FluxMemory,
    "flux-hybrid": policies.FluxHybrid,
    "local-disk": policies.LocalDisk,
    "lazy-disk": policies.LazyDisk,
    "active-disk": policies.ActiveDisk,
    "forecast-disk": policies.ForecastDisk,
}
PARTITIONERS: dict[str, type[Any]] = {
    "uniform-hash": partitioning.UniformHash,
    "consistent-hash": partitioning.ConsistentHash,
    "scan": partitioning.Scan,
    "redist": partitioning.Redist,
    "readj": partitioning.Readj,
    "slotted": partitioning.Slotted,
}


def policy(given: Any) -> Any:
    """The policy that a user means: an object, a class, a name, or a name with settings."""
    return _made("policy", given, POLICIES, ("suggest", "snapshot", "restore"))


def partitioner(given: Any) -> Any:
    """The partitioning function that a user means, in the same ways."""
    return _made("partitioner", given, PARTITIONERS, ("build",))


def _made(what: str, given: Any, known: Mapping[str, type[Any]], methods: Sequence[str]) -> Any:
    settings: dict[str, Any] = {}
    if isinstance(given, Mapping):
        settings = {str(key): value for key, value in given.items()}
        given = settings.pop("name", None)
    if given is None and not settings:
        return None
    if isinstance(given, str):
        given = _by_name(what, given, known)
    if not inspect.isclass(given) and not settings:
        return _checked(what, given, methods)
    if not inspect.isclass(given):
        raise ConfigError(f"{what} needs a name beside its settings, such as name = {next(iter(known))!r}")
    try:
        return _checked(what, given(**settings), methods)
    except TypeError as error:
        raise ConfigError(f"{what} {given.__name__} cannot be made: {error}") from error


def _by_name(what: str, name: str, known: Mapping[str, type[Any]]) -> type[Any]:
    spelt = {_plain(key): kind for key, kind in known.items()}
    if _plain(name) not in spelt:
        raise ConfigError(f"{what} {name!r} is not known; there are: {', '.join(known)}")
    return spelt[_plain(name)]


def _plain(name: str) -> str:
    """`flux-load`, `flux_load` and `FluxLoad` are one name."""
    return re.sub(r"[-_ ]", "", name).lower()


def _checked(what: str, made: Any, methods: Sequence[str]) -> Any:
    missing = [name for name in methods if not callable(getattr(made, name, None))]
    if missing:
        raise ConfigError(
            f"{what} must have the methods {', '.join(methods)}; {type(made).__name__} lacks {', '.join(missing)}"
        )
    return made
