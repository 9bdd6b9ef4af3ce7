"""Query files: what a TOML file may say, alone or beside an SQL file, checked before Spark starts.

Every table and key is named here; a misspelt one is an error that lists the ones there are. Values that only Spark can
judge, such as a column's name, are checked when the query is built (`fluxen.spark.from_config`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fluxen.arrays import Json
from fluxen.engine.options import AdaptOptions
from fluxen.errors import ConfigError, FluxenError
from fluxen.operators.aggregate.functions import Aggregate, parsed
from fluxen.partitioning.registry import PARTITIONERS
from fluxen.policies.registry import POLICIES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["QueryFile", "read_query"]

_STEPS = {"join": ("on",), "distinct": ("by",), "aggregate": ("by",), "top": ("by", "n", "order")}
"""the tables that say what to compute, in the order in which they follow each other, and what each must name"""
_TABLES = ("name", "session", "sources", *_STEPS, "adapt", "sink", "trigger")
_KEYS = {
    "session": ("master", "packages", "settings"),
    "source": ("format", "path", "schema", "json", "options", "watermark"),
    "watermark": ("column", "delay"),
    "join": ("on", "time", "within", "between", "lateness", "idle", "plan", "ttl", "how"),
    "distinct": ("by", "time", "within", "lateness", "ttl"),
    "aggregate": ("by", "time", "window", "slide", "session", "emit", "last", "lateness", "ttl", "values"),
    "top": ("by", "n", "order", "time", "closes", "lateness", "ttl"),
    "adapt": (*(field.name for field in fields(AdaptOptions)), "balance"),
    "sink": ("format", "path", "checkpoint", "partition_by", "select", "options"),
    "trigger": ("availableNow", "processingTime", "once"),
    "between": ("later", "earlier", "least", "most"),
}


@dataclass(frozen=True, kw_only=True)
class QueryFile:
    """A query file after all checks that need no Spark; paths are absolute or URIs."""

    name: str
    master: str | None
    packages: list[str]
    settings: dict[str, str]
    sources: dict[str, Json]
    join: Json | None
    distinct: Json | None
    aggregate: Json | None
    aggregates: dict[str, Aggregate]
    top: Json | None
    adapt: Json
    sink: Json
    trigger: Json
    sql: str | None = None
    """the query, where it is SQL and not made of tables"""

    @property
    def steps(self) -> list[str]:
        if self.sql is not None:
            return ["SQL"]
        return [name for name in _STEPS if getattr(self, name) is not None]


def read_query(path: Path) -> QueryFile:
    """Read and check a query file; the sources and the sink of an SQL file are in a TOML file of the same name."""
    if path.suffix.lower() != ".sql":
        return _query(_toml(path, "give the path of a TOML or SQL file"), path)
    sql = _text_of(path, "give the path of a TOML or SQL file").strip().removesuffix(";")
    if not sql:
        raise ConfigError(f"the query file {path} is empty; write one SELECT statement")
    beside = path.with_suffix(".toml")
    return _query(_toml(beside, f"the sources and the sink of {path.name} are described there"), beside, sql)


def _text_of(path: Path, hint: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no query file {path}; {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the query file {path}: {error}") from error


def _toml(path: Path, hint: str) -> Json:
    try:
        return tomllib.loads(_text_of(path, hint))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the query file {path} is not TOML: {error}") from error


def _query(data: Json, path: Path, sql: str | None = None) -> QueryFile:
    _known(data, _TABLES, "the query file", "table")
    base = path.resolve().parent
    session = _table(data, "session")
    sources = {name: _source(name, table, base) for name, table in _sources(data).items()}
    steps = {name: _table(data, name) for name in _STEPS if name in data}
    joined, distinct, aggregate, top = map(steps.get, _STEPS)
    if sql is None:
        _check_steps(sources, steps)
    elif steps:
        raise ConfigError(f"{path.name} stands beside SQL, which says what to compute; leave [join] and the like out")
    return QueryFile(
        name=str(data.get("name", path.stem)),
        master=session.get("master"),
        packages=_names(session, "packages", "[session]"),
        settings={key.replace(".", "__"): _text(value) for key, value in session.get("settings", {}).items()},
        sources=sources,
        join=None if joined is None else {**joined, "between": _between(joined)},
        distinct=distinct,
        aggregate=aggregate,
        aggregates=_aggregates(aggregate),
        top=None if top is None else {**top, "order": _order(top["order"])},
        adapt=_adapt(data),
        sink=_sink(data, base),
        trigger=_trigger(data),
        sql=sql,
    )


def _known(found: Iterable[str], known: Iterable[str], where: str, what: str = "key") -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise ConfigError(f"{where} has an unknown {what} {unknown[0]!r}; there are: {', '.join(known)}")


def _table(data: Json, name: str, where: str | None = None) -> Json:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{where or name} must be a table, got {table!r}; write [{where or name}]")
    _known(table, _KEYS.get(name, table), f"[{where or name}]")
    return table


def _sources(data: Json) -> Json:
    sources = data.get("sources")
    if not isinstance(sources, dict) or not sources:
        raise ConfigError("the query file names no source; add [sources.NAME] with format and path")
    return sources


def _source(name: str, table: Any, base: Path) -> Json:
    if not isinstance(table, dict):
        raise ConfigError(f"sources.{name} must be a table, got {table!r}; write [sources.{name}]")
    _known(table, _KEYS["source"], f"[sources.{name}]")
    made = {"format": "parquet", "options": {}, **table}
    if "path" in made:
        made["path"] = _absolute(made["path"], base)
    if "watermark" in made and set(_table(made, "watermark", f"sources.{name}.watermark")) != {"column", "delay"}:
        raise ConfigError(f"[sources.{name}] watermark needs column and delay: column = 'ts', delay = '1 minute'")
    return {**made, "options": {key: _text(value) for key, value in made["options"].items()}}


def _names(table: Json, name: str, where: str) -> list[str]:
    given = table.get(name, [])
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ConfigError(f"{where} {name} takes a list of strings, got {given!r}")
    return given


def _absolute(path: str, base: Path) -> str:
    return path if "://" in path else str(base / path)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_steps(sources: Json, steps: dict[str, Json]) -> None:
    if not steps:
        *most, last = (f"[{name}]" for name in _STEPS)
        raise ConfigError(f"the query file does nothing: add {', '.join(most)} or {last}")
    for other in (name for name in steps if "distinct" in steps and name != "distinct"):
        raise ConfigError(f"[distinct] and [{other}] cannot follow each other in one query; use one of them")
    if "join" not in steps and len(sources) > 1:
        raise ConfigError(f"there are {len(sources)} sources and no [join] to bring them together")
    means = {"n": "how many rows of each key", "order": "columns with directions, such as [['price', 'desc'], 'ts']"}
    for name, table in steps.items():
        for needed in _STEPS[name]:
            if needed not in table:
                raise ConfigError(f"[{name}] needs {needed}: {means.get(needed, 'the key column, or a list of them')}")


def _order(order: Any) -> list[Any]:
    """As fx.top() takes it: each column by itself, or with its direction."""
    given = [order] if isinstance(order, str) else order
    made = [tuple(one) if isinstance(one, list) else one for one in given] if isinstance(given, list) else [given]
    for one in made:
        words = one if isinstance(one, tuple) else (one, "asc")
        if len(words) != 2 or not all(isinstance(word, str) for word in words):
            raise ConfigError(f"[top] order takes columns, or pairs such as ['price', 'desc'], got {order!r}")
    return made


def _between(joined: Json) -> Any:
    """A list of {later, earlier, least, most} as fx.join() takes it."""
    if "between" not in joined:
        return None
    bounds = {}
    for entry in joined["between"]:
        _known(entry, _KEYS["between"], "[[join.between]]")
        if "later" not in entry or "earlier" not in entry:
            raise ConfigError("[[join.between]] needs later and earlier, the names of two sources")
        bounds[entry["later"], entry["earlier"]] = (entry.get("least"), entry.get("most"))
    return bounds


def _aggregates(table: Json | None) -> dict[str, Aggregate]:
    if table is None:
        return {}
    values = table.get("values")
    if not isinstance(values, dict) or not values:
        raise ConfigError("[aggregate] needs values, such as values = { n = 'count()', low = 'min(price)' }")
    return {name: parsed(name, str(text)) for name, text in values.items()}


def _sink(data: Json, base: Path) -> Json:
    sink = _table(data, "sink")
    for needed in ("format", "checkpoint"):
        if needed not in sink:
            raise ConfigError(f"[sink] needs {needed}; for instance format = 'parquet' and checkpoint = 'checkpoint'")
    options = {key: _text(value) for key, value in sink.get("options", {}).items()}
    made = {**sink, "options": options, "checkpoint": _absolute(sink["checkpoint"], base)}
    made["select"] = _names(sink, "select", "[sink]")
    if "path" in made:
        made["path"] = _absolute(made["path"], base)
    return made


def _adapt(data: Json) -> Json:
    """The options as `Query.adapt` takes them; policies and partitioners by name, or as a table with a name."""
    adapt = dict(_table(data, "adapt"))
    own = adapt.get("stages", {})
    tables = {"adapt": adapt, **{f"adapt.stages.{number}": table for number, table in own.items()}}
    for where, table in tables.items():
        for name, made in (("policy", POLICIES.make), ("partitioner", PARTITIONERS.make)):
            if isinstance(table, dict) and name in table:
                try:
                    table[name] = made(table[name])
                except FluxenError as error:
                    raise ConfigError(f"[{where}] {error}") from error
    return adapt


def _trigger(data: Json) -> Json:
    trigger = _table(data, "trigger") or {"availableNow": True}
    if len(trigger) != 1:
        raise ConfigError(f"[trigger] takes one of {', '.join(_KEYS['trigger'])}, got {', '.join(trigger)}")
    return trigger
