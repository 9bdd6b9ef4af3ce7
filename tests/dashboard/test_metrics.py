"""The metrics endpoint: Prometheus' own parser reads it, counters only grow, and every metric is documented."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fluxen.dashboard.metrics import BUCKETS, METRICS, exposition
from fluxen.dashboard.source import Source
from fluxen.engine import totals
from fluxen.state.events import PROTOCOLS
from fluxen.state.store import Store
from tests.dashboard.queries import Replanning, Spilling

ROOT = Path(__file__).parents[2]
NAME = 'a "name"\\ with\nlines'
CATALOGUE = ROOT / "docs" / "dashboard.md"


def parsed(text: str) -> dict[str, Any]:
    """Samples by name; twice the same one is an error, as it is for Prometheus."""
    found: dict[str, dict[Any, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), sample
            found[sample.name][labels] = sample.value
    return found


def now(directory: Path) -> dict[str, Any]:
    return Source(Store(str(directory))).now()


@pytest.fixture(scope="module")
def story(tmp_path_factory: Any) -> list[str]:
    """What the endpoint says of two queries, early, late, and after a restart."""
    directory = tmp_path_factory.mktemp("metrics")
    told = []
    for steps in (3, 12):
        queries = [Spilling(directory / "a", NAME), Replanning(directory / "b", NAME)]
        for query in queries:
            query.batch = query.engine.epoch.batch + 1
            for _ in range(steps):
                query.step()
            query.engine.close()
        told.append(exposition([now(directory / "a"), now(directory / "b")]))
    return told


def test_prometheus_own_parser_reads_every_metric_there_is(story):
    families = {family.name: family for family in text_string_to_metric_families(story[-1])}
    for name, (kind, text) in METRICS.items():
        family = families[name.removesuffix("_total")]
        assert (family.type, family.documentation) == (kind, text)
        assert family.samples or name in ("fluxen_latency_seconds", "fluxen_moved_bytes_total")


def test_names_come_back_as_they_were_and_are_told_apart(story):
    queries = {dict(labels)["query"] for labels in parsed(story[-1])["fluxen_up"]}
    assert queries == {NAME, f"{NAME} (2)"}


def test_counters_only_grow_also_over_a_restart(story):
    before, after = (parsed(text) for text in story)
    for name in before:
        if name.endswith(("_total", "_bucket", "_count", "_sum")):
            for labels, value in before[name].items():
                assert after[name][labels] >= value, (name, labels)


def test_the_counts_are_those_of_the_run(story):
    seen = parsed(story[-1])
    of = lambda name, **labels: {  # noqa: E731
        key: value for key, value in seen[name].items() if labels.items() <= dict(key).items()
    }
    assert of("fluxen_rows_total", query=NAME)[("query", NAME),] == 15 * 1_000
    assert sum(of("fluxen_site_rows_total", query=NAME).values()) == 15 * 1_000
    assert of("fluxen_epochs_total", query=NAME)[("query", NAME),] == 15
    assert of("fluxen_batch_seconds_count", query=NAME)[("query", NAME),] == 15
    assert sum(of("fluxen_adaptations_total", query=NAME, kind="spill", outcome="done").values()) > 0
    assert sum(of("fluxen_site_spilled_bytes", query=NAME).values()) > 0
    assert set(of("fluxen_site_memory_limit_bytes", query=NAME).values()) == {90_000}
    assert sum(of("fluxen_adaptations_total", query=f"{NAME} (2)", kind="replan").values()) > 0


def test_the_steps_of_a_move_are_no_adaptations_of_their_own(story):
    """The move has an entry itself; its protocol has up to eight more."""
    kinds = {dict(labels)["kind"] for labels in parsed(story[-1])["fluxen_adaptations_total"]}
    assert {"move", "spill", "replan"} <= kinds
    assert kinds.isdisjoint(PROTOCOLS)


def test_buckets_are_cumulative_and_end_with_all(story):
    seen = parsed(story[-1])
    buckets = [
        (dict(key)["le"], value)
        for key, value in seen["fluxen_batch_seconds_bucket"].items()
        if dict(key)["query"] == NAME
    ]
    assert [float(bound) for bound, _ in buckets] == [*BUCKETS, float("inf")]
    counts = [value for _, value in buckets]
    assert counts == sorted(counts)
    assert counts[-1] == 15
    assert BUCKETS == totals.BUCKETS


def test_refusals_that_repeat_are_counted_once_each():
    counted = totals.Totals.of(None, 1)
    for count in (1, 2, 4, 8):
        counted._count(counted.events[0], {"kind": "move", "outcome": "refused", "count": count})
    assert counted.events[0][0]["count"] == 8


def test_every_metric_is_documented_and_none_that_is_not_there():
    documented = dict(
        re.findall(r"^\| `(fluxen_\w+)` \| (\w+) \|", CATALOGUE.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert documented == {name: kind for name, (kind, _) in METRICS.items()}


def test_the_grafana_dashboard_asks_for_metrics_that_exist():
    board = json.loads((ROOT / "docs" / "grafana.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    names = {name for expression in asked for name in re.findall(r"fluxen_\w+", expression)}
    assert len(asked) >= 10
    assert {re.sub(r"_(bucket|sum|count)$", "", name) if name not in METRICS else name for name in names} <= set(
        METRICS
    )
