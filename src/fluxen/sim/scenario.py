"""A scenario as a table of plain values, as a TOML file holds it; `fluxen.cli.simulate` reads the file.

>>> scenario, policy = parse({"seconds": 5, "cluster": {"sites": 4}, "policy": {"name": "FluxLoad"}})
>>> scenario.cluster.sites, type(policy).__name__
(4, 'FluxLoad')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from fluxen.errors import ConfigError
from fluxen.policies.base import Policy
from fluxen.policies.registry import POLICIES
from fluxen.sim.cluster import Cluster
from fluxen.sim.load import CpuLoad, MemoryLoad
from fluxen.sim.simulator import Scenario

__all__ = ["parse"]

_TOP = ("seconds", "step", "report", "seed", "cluster", "keys", "policy", "cpu", "memory")


def parse(table: Mapping[str, Any]) -> tuple[Scenario, Policy]:
    """The scenario and the policy a table describes; says what is wrong with it otherwise."""
    _known("the file", table, _TOP)
    keys = table.get("keys", {})
    _known("[keys]", keys, ("kind", "skew"))
    kind = keys.get("kind", "uniform")
    if kind not in ("uniform", "self-similar", "zipf"):
        raise ConfigError(f"scenario: [keys] kind must be uniform, self-similar or zipf, got {kind!r}")
    loads = [_made(CpuLoad, "[[cpu]]", entry) for entry in table.get("cpu", ())]
    loads += [_made(MemoryLoad, "[[memory]]", entry) for entry in table.get("memory", ())]
    values = {name: table[name] for name in ("seconds", "step", "report", "seed") if name in table}
    scenario = _checked(
        Scenario,
        "the file",
        cluster=_made(Cluster, "[cluster]", table.get("cluster", {})),
        keys=kind,
        skew=keys.get("skew"),
        loads=tuple(loads),
        **values,
    )
    return scenario, _policy(table.get("policy", {"name": "static"}))


def _policy(table: Any) -> Policy:
    if not isinstance(table, Mapping):
        raise ConfigError(f"scenario: [policy] must be a table, got {table!r}")
    try:
        policy = POLICIES.make(table)
    except ConfigError as error:
        raise ConfigError(f"scenario: [policy] {error}") from error
    if policy.spills or policy.routes:
        name = type(policy).__name__
        raise ConfigError(
            f"scenario: [policy] {name} asks for more than moves, which are all the simulator carries out"
        )
    return policy


def _made(kind: Any, where: str, entry: Any) -> Any:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"scenario: {where} must be a table, got {entry!r}")
    _known(where, entry, [field.name for field in fields(kind)])
    return _checked(kind, where, **{key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()})


def _checked(kind: Any, where: str, **values: Any) -> Any:
    try:
        return kind(**values)
    except TypeError as error:  # a missing entry, or a text where a number belongs
        raise ConfigError(f"scenario: {where} does not fit: {error}") from error


def _known(where: str, table: Mapping[str, Any], allowed: Iterable[str]) -> None:
    if not isinstance(table, Mapping):
        raise ConfigError(f"scenario: {where} must be a table, got {table!r}")
    names = list(allowed)
    unknown = [key for key in table if key not in names]
    if unknown:
        raise ConfigError(f"scenario: {where} has no entry {unknown[0]!r}; expected some of {', '.join(names)}")
