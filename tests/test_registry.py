"""Members of a family by name, by class and by path, and what is said of wrong ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import fluxen as fx
from fluxen.cli.main import main
from fluxen.cli.query_file import read_query
from fluxen.engine.options import AdaptOptions
from fluxen.errors import ConfigError
from fluxen.partitioning import PARTITIONERS
from fluxen.policies import POLICIES
from fluxen.policies.base import Move, Stats

OWN = """
import fluxen as fx
from fluxen.policies.base import Move

class LeaveSiteZero(fx.Policy):
    def __init__(self, *, at_once: int = 1) -> None:
        self.at_once = at_once

    def suggest(self, stats, now):
        here = [int(pg) for pg in stats.pg[(stats.placement == 0) & ~stats.moving]][: self.at_once]
        return [Move(pgs=tuple(here), donor=0, receiver=1, why="site 0 is leaving")] if here else []

class NoPolicy:
    pass
"""
PATH = "own_policies:LeaveSiteZero"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's module in the directory that commands are called from."""
    (tmp_path / "own_policies.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("own_policies", None)


def test_a_policy_of_a_user_is_usable_by_name_in_python(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(own)
    assert type(AdaptOptions(policy=PATH).policy).__name__ == "LeaveSiteZero"  # type: ignore[arg-type]
    named: Any = {"name": PATH, "at_once": 3}
    policy: Any = AdaptOptions(policy=named).policy
    assert policy.at_once == 3
    assert isinstance(policy, fx.Policy)
    stats = Stats.build(sites=2, placement=[0, 0, 1, 0, 0])
    assert policy.suggest(stats, 1.0) == [Move(pgs=(0, 1, 3), donor=0, receiver=1, why="site 0 is leaving")]


def test_a_policy_of_a_user_is_usable_by_name_in_a_query_file(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = own / "query.toml"
    file.write_text(
        f'[sources.a]\npath = "a"\n[distinct]\nby = "k"\n[adapt]\npolicy = {{ name = "{PATH}", at_once = 2 }}\n'
        '[sink]\nformat = "noop"\ncheckpoint = "c"\n'
    )
    assert main(["run", str(file), "--check"]) == 0, capsys.readouterr().err
    assert read_query(file).adapt["policy"].at_once == 2


def test_a_policy_of_a_user_is_usable_by_name_in_a_simulation(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = own / "scenario.toml"
    file.write_text(f'seconds = 1\n[cluster]\nsites = 4\ngroups_per_site = 4\n[policy]\nname = "{PATH}"\n')
    assert main(["simulate", str(file), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["policy"] == "LeaveSiteZero"
    assert report["moves"] > 0


@pytest.mark.parametrize("name", POLICIES.members)
def test_every_policy_is_known_in_every_spelling(name: str) -> None:
    kind = POLICIES.members[name]
    for given in (name, name.replace("-", "_"), kind.__name__, kind, {"name": name}, kind()):
        assert type(POLICIES.make(given)) is kind


@pytest.mark.parametrize("name", PARTITIONERS.members)
def test_every_partitioner_is_known_and_exported(name: str) -> None:
    kind = PARTITIONERS.members[name]
    assert getattr(fx, kind.__name__) is kind
    assert type(PARTITIONERS.make({"name": name, "seed": 3})) is kind


def test_every_policy_is_exported() -> None:
    assert [getattr(fx, kind.__name__) for kind in POLICIES.members.values()] == list(POLICIES.members.values())


class Undecided(fx.Policy):
    """Lacks `suggest`."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("flux-lod", "'flux-lod' is not known; there are: static, .*; one of your own is named by its path"),
        ({"imbalance": 2.0}, "needs a name beside its settings"),
        ({"name": "lazy-disk", "gap": "45 seconds"}, "LazyDisk: gap must be a number, got '45 seconds'"),
        ({"name": "lazy-disk", "guarded": 1}, "guarded must be true or false, got 1"),
        ({"name": "flux-load", "min_collection": "soon"}, "min_collection must be a number or 'auto', got 'soon'"),
        ({"name": "flux-load", "groups_per_move": True}, "groups_per_move must be a whole number, got True"),
        ({"name": "active-disk", "victims": "mine"}, "victims must be 'less-productive', .*, got 'mine'"),
        ({"name": "flux-load", "speed": 1}, "FluxLoad has no setting 'speed'; there are: min_collection, imbalance"),
        ("no_such_module:Mine", "'no_such_module:Mine' cannot be loaded"),
        ("fluxen.policies.base:Nobody", "cannot be loaded: .* no attribute 'Nobody'"),
        ("fluxen.policies.base:Stats", "is not a class that derives from fluxen.Policy"),
        (Stats, "derive from fluxen.Policy"),
        (7, "must be a name, such as 'static', or derive from fluxen.Policy; got 7"),
        (Undecided, "Undecided cannot be made: .*suggest"),
    ],
)
def test_a_policy_that_cannot_be_is_one_clear_line(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        POLICIES.make(given)
    assert "\n" not in str(raised.value)


def test_a_policy_that_says_nothing_of_itself_is_an_ordinary_one() -> None:
    class Quiet(fx.Policy):
        def suggest(self, stats: Stats, now: float) -> Sequence[Move]:
            return ()

    quiet = Quiet()
    assert (quiet.spills, quiet.recency, quiet.needs_memory, quiet.routes) == (False,) * 4
    assert quiet.snapshot() == {}
    assert fx.LazyDisk(recency=True).recency
