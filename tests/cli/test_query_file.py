from __future__ import annotations

import json
from pathlib import Path

import pytest

from fluxen.cli.main import main
from fluxen.cli.query_file import read_query
from fluxen.engine.options import AdaptOptions
from fluxen.errors import FluxenError
from fluxen.policies import FluxMemory

WHOLE = """
name = "cheapest"
[session]
master = "local[2]"
settings = { "spark.sql.shuffle.partitions" = 2 }
[sources.a]
path = "a"
options = { maxFilesPerTrigger = 1 }
[sources.b]
format = "rate"
[join]
on = ["k"]
time = "ts"
[[join.between]]
later = "b"
earlier = "a"
least = "0 seconds"
[aggregate]
by = "k"
values = { n = "count()", low = "min(a_v)" }
[adapt]
sites = 2
[sink]
format = "parquet"
path = "out"
checkpoint = "file:///elsewhere"
[trigger]
processingTime = "5 seconds"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "query.toml"
    path.write_text(text)
    return path


def test_a_file_says_everything_a_query_needs(tmp_path: Path) -> None:
    query = read_query(write(tmp_path, WHOLE))
    assert query.name == "cheapest"
    assert query.settings == {"spark__sql__shuffle__partitions": "2"}
    assert query.sources["a"]["path"] == str(tmp_path / "a")
    assert query.sources["a"]["options"] == {"maxFilesPerTrigger": "1"}
    assert query.join == {"on": ["k"], "time": "ts", "between": {("b", "a"): ("0 seconds", None)}}
    assert [str(aggregate) for aggregate in query.aggregates.values()] == ["count()", "min(a_v)"]
    assert query.sink["checkpoint"] == "file:///elsewhere"
    assert query.steps == ["join", "aggregate"]


def test_stages_have_options_of_their_own_by_number(tmp_path: Path) -> None:
    own = "[adapt.stages.2]\npolicy = { name = 'flux-memory', imbalance = 1.5 }\nmemory_per_site = '1m'\n[sink]"
    options = AdaptOptions(**read_query(write(tmp_path, WHOLE.replace("[sink]", own))).adapt)
    assert options.at(0).memory is None
    assert (type(options.at(1).policy), options.at(1).memory) == (FluxMemory, 1 << 20)
    with pytest.raises(FluxenError, match=r"\[adapt.stages.2\] policy 'flux-moon' is not known"):
        read_query(write(tmp_path, WHOLE.replace("[sink]", own.replace("flux-memory", "flux-moon"))))


def test_top_comes_last_and_has_its_order_as_pairs_or_columns_by_themselves(tmp_path: Path) -> None:
    top = "[top]\nby = 'k'\nn = 3\norder = [['n', 'desc'], 'low']\n"
    query = read_query(write(tmp_path, top + WHOLE.removeprefix('\nname = "cheapest"')))
    assert query.top == {"by": "k", "n": 3, "order": [("n", "desc"), "low"]}
    assert query.steps == ["join", "aggregate", "top"]
    query = read_query(write(tmp_path, WHOLE + top.replace("[['n', 'desc'], 'low']", "'low'")))
    assert query.top is not None
    assert query.top["order"] == ["low"]


def test_check_reads_the_file_and_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(write(tmp_path, WHOLE)), "--check"]) == 0
    assert "a, b -> join -> aggregate -> parquet" in capsys.readouterr().out


def test_check_tells_scripts_what_the_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, WHOLE)
    assert main(["run", str(path), "--check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    query = read_query(path)
    assert found == {"file": str(path), "sources": list(query.sources), "steps": query.steps, "sink": "parquet"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[trigger]", "[triger]", "unknown table 'triger'"),
        ("on = ", "keys = ", "unknown key 'keys'"),
        ('on = ["k"]', "", "[join] needs on"),
        ("min(a_v)", "median(a_v)", "is not an aggregate"),
        ("min(a_v)", "min()", "needs a column"),
        ("sites = 2", 'policy = { name = "lazy-disk", gap = "45 seconds" }', "gap must be a number, got '45 seconds'"),
        ("sites = 2", "site = 2", "unknown key 'site'"),
        ('earlier = "a"', "", "later and earlier"),
        ('format = "parquet"\n', "", "[sink] needs format"),
        ('processingTime = "5 seconds"', "once = true\navailableNow = true", "takes one of"),
        ("[join]", "[distinct]\nby = 'k'\n[join]", "use one of them"),
        ("name =", "name", "is not TOML"),
        ("[adapt]", "[top]\nby = 'k'\norder = 'n'\n[adapt]", "[top] needs n: how many"),
        ("[adapt]", "[top]\nby = 'k'\nn = 3\n[adapt]", "[top] needs order: columns with directions"),
        ("[adapt]", "[top]\nby = 'k'\nn = 3\norder = [['n', 'desc', 'x']]\n[adapt]", "or pairs such as"),
        ("[adapt]", "[top]\nby = 'k'\nn = 3\norder = 7\n[adapt]", "got 7"),
        ("[adapt]", "[top]\nrows = 3\n[adapt]", "unknown key 'rows'"),
    ],
)
def test_a_mistake_is_named_in_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in WHOLE
    with pytest.raises(FluxenError) as caught:
        read_query(write(tmp_path, WHOLE.replace(old, new)))
    assert said in str(caught.value)


BESIDE = """
[sources.bid]
path = "bids"
watermark = { column = "ts", delay = "1 minute" }
[sink]
format = "parquet"
path = "out"
checkpoint = "checkpoint"
"""


def test_sql_has_its_sources_and_sink_in_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text("SELECT k, count(*) FROM bid GROUP BY k;\n")
    (tmp_path / "query.toml").write_text(BESIDE)
    query = read_query(tmp_path / "query.sql")
    assert query.sql == "SELECT k, count(*) FROM bid GROUP BY k"
    assert query.steps == ["SQL"]
    assert query.sources["bid"]["watermark"] == {"column": "ts", "delay": "1 minute"}


@pytest.mark.parametrize(
    ("sql", "beside", "said"),
    [
        (" ;", BESIDE, "is empty"),
        ("SELECT 1", None, "query.toml"),
        ("SELECT 1", BESIDE + "[aggregate]\nby = 'k'", "leave [join] and the like out"),
        ("SELECT 1", BESIDE.replace(', delay = "1 minute"', ""), "needs column and delay"),
        ("SELECT 1", BESIDE.replace("delay", "dellay"), "unknown key 'dellay'"),
    ],
)
def test_a_mistake_around_sql_is_named(tmp_path: Path, sql: str, beside: str | None, said: str) -> None:
    (tmp_path / "query.sql").write_text(sql)
    if beside is not None:
        (tmp_path / "query.toml").write_text(beside)
    with pytest.raises(FluxenError) as caught:
        read_query(tmp_path / "query.sql")
    assert said in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path / "none.toml")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_topic_has_json_and_results_are_shaped_for_the_sink(tmp_path: Path) -> None:
    topic = WHOLE.replace('[sources.a]\npath = "a"', '[sources.a]\nformat = "kafka"\njson = "k string"')
    topic = topic.replace('master = "local[2]"', 'packages = ["kafka"]')
    query = read_query(
        write(tmp_path, topic.replace("[sink]", '[sink]\nselect = ["k as key", "to_json(struct(*)) as value"]'))
    )
    assert query.packages == ["kafka"]
    assert query.sources["a"]["json"] == "k string"
    assert query.sink["select"] == ["k as key", "to_json(struct(*)) as value"]
    with pytest.raises(FluxenError, match=r"\[session\] packages takes a list of strings, got 'kafka'"):
        read_query(write(tmp_path, topic.replace('["kafka"]', '"kafka"')))
