"""The programs of the connectors' pages, and the query files over Kafka, run as they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fluxen.cli.main import main
from tests.docs.test_pages import ROOT, blocks

pytestmark = pytest.mark.connectors

EARNED = {f"site-{n}": {"site": f"site-{n}", "clicks": 20, "earned": sum(range(n, 100, 5))} for n in range(5)}


def program(page: str, **other: str) -> str:
    """The page's program, with the session of this process and other values in the place of some."""
    (code,) = blocks(f"docs/connectors/{page}.md")
    before, _, rest = code.partition("fx.session(")
    return replaced(f"{before}fx.session({rest[rest.index(')') :]}", **other)


def replaced(text: str, **other: str) -> str:
    for name, value in other.items():
        known = f'"{name.replace("_", "-")}"'
        assert known in text, known
        text = text.replace(known, json.dumps(value))
    return text


def shown(page: str) -> list[str]:
    (code,) = blocks(f"docs/connectors/{page}.md")
    return [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# [")]


def test_the_program_for_kafka_and_both_query_files_give_the_same(spark: Any, kafka: Any, tmp_path: Path) -> None:
    clicks, results = kafka.make("clicks"), {name: kafka.make(name) for name in ("page", "toml", "sql")}
    code = program("kafka", site_clicks=clicks, site_earnings=results["page"], checkpoint=str(tmp_path / "first"))
    exec(compile(code.replace("localhost:9092", kafka.servers), "kafka.md", "exec"), {})
    for kind, files in {"toml": ["earned-query.toml"], "sql": ["earned.sql", "earned.toml"]}.items():
        for name in files:
            text = (ROOT / "examples" / name).read_text().replace("localhost:9092", kafka.servers)
            if name.endswith(".toml"):
                text = replaced(text, site_clicks=clicks, site_earnings=results[kind])
            (tmp_path / name).write_text(text)
        assert main(["run", str(tmp_path / files[0]), "--plain"]) == 0
    for name, topic in results.items():
        records = kafka.read(topic)
        assert {record.key: record.json for record in records} == EARNED, name
        assert len(records) == len(EARNED), name


@pytest.mark.parametrize("page", ["delta", "iceberg"])
def test_the_program_for_tables_gives_what_it_says(page: str, tables: Any, tmp_path: Path, capsys: Any) -> None:
    names = ["input", "checkpoint", *(["earnings"] if page == "delta" else [])]
    code = program(page, **{name: str(tmp_path / name) for name in names})
    exec(compile(code, f"{page}.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == shown(page)
