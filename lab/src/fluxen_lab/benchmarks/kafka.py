"""`fluxen bench kafka`: a running aggregate over a topic, beside Spark's groupBy and Spark's passing the topic through.

Part `in` drops the results, part `out` sends them to another topic: fluxen exactly once, Spark with its own sink. The
queries are in spark/kafka.py; the broker is one process on this machine, which all engines share by turns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from fluxen.errors import PlatformError
from fluxen_lab.benchmarks import oracle, report
from fluxen_lab.benchmarks.compare import Comparison, compare, parquet_relation
from fluxen_lab.benchmarks.context import TOLERANCE, Context, Prepared
from fluxen_lab.benchmarks.job import Job, Settings, Sink
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.benchmarks.turns import Engine
from fluxen_lab.connectors.broker import Broker
from fluxen_lab.connectors.jars import KAFKA as JARS
from fluxen_lab.connectors.jars import fetched
from fluxen_lab.datagen.workloads import KAFKA

__all__ = ["run"]

ROUNDS = 3
REHEARSAL_S = 30.0
_LIMIT_S = 120.0
_PARTITIONS = 2
_ENGINES = {"fluxen": "fluxen-kafka-running", "grouped": "kafka-grouped", "passed": "kafka-passed"}


def run(context: Context, rounds: int = ROUNDS) -> dict[str, Any]:
    prepared = context.prepare(KAFKA)
    jars = tuple(map(str, fetched(JARS)))
    with Broker(context.work / "broker", java=("-Xmx1g",)) as broker:
        topics = [_filled(context, broker, prepared.data, context.work / "data" / "rows")]
        topics.append(_filled(context, broker, context.rehearsal(prepared), context.work / "data" / "rehearsed"))
        _clients(broker)[1]("out")
        context.oracle("expected", oracle.running_sql(prepared.data))
        with contextlib.ExitStack() as stack:
            engines = {}
            for name, query in _ENGINES.items():
                job = _job(context, prepared, query, topics, broker.servers, jars)
                engines[name] = stack.enter_context(Engine(job, prepared.workload.batches))
            parts = [_part(context, prepared, engines, sink, rounds) for sink in ("noop", "kafka")]
            compared = _checked(context, prepared, engines["fluxen"])
    for part in parts:
        part["correct"] = compared is not None and compared.equal
    return report.whole("kafka", context.options, parts)


def _job(
    context: Context, prepared: Prepared, query: str, topics: Sequence[Path], servers: str, jars: tuple[str, ...]
) -> Job:
    return replace(
        context.job(prepared, query),
        data=topics[0],
        rehearsal=topics[1],
        rehearsal_s=REHEARSAL_S * min(1.0, context.options.scale),
        settings=Settings(shuffle_partitions=2, tuned=True),
        limit_s=_LIMIT_S,
        grace_s=_LIMIT_S,
        mode="update" if query == "kafka-grouped" else "append",
        servers=servers,
        jars=jars,
    )


# ---- topics


def _clients(broker: Broker) -> tuple[Any, Any]:
    """A producer, and a function that makes topics."""
    try:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic
    except ImportError as error:
        raise PlatformError(f"this benchmark needs confluent-kafka ({error}); pip install 'fluxen[kafka]'") from None
    admin = AdminClient({"bootstrap.servers": broker.servers})

    def make(topic: str) -> None:
        for made in admin.create_topics([NewTopic(topic, _PARTITIONS, 1)]).values():
            made.result(30)

    settings = {"queue.buffering.max.messages": 1_000_000, "linger.ms": 20, "delivery.report.only.error": True}
    return Producer({"bootstrap.servers": broker.servers, **settings}), make


def _filled(context: Context, broker: Broker, data: Path, topic: Path) -> Path:
    """A topic of a directory's name with the rows of files, as JSON, in turns over its partitions.

    Each file is then a micro-batch of as many offsets.
    """
    producer, make = _clients(broker)
    make(topic.name)
    topic.mkdir(parents=True)
    count = 0
    for path in sorted((data / "rows").glob("*.parquet")):
        rows = pq.read_table(path, columns=["key", "value"]).to_pydict()
        (topic / "limit").write_text(str(len(rows["key"])))
        for number, (key, value) in enumerate(zip(rows["key"], rows["value"])):
            record = f'{{"key":{key},"value":{value}}}'
            producer.produce(topic.name, record, str(key), number % _PARTITIONS)
            if number % 10_000 == 0:
                producer.poll(0)
        producer.flush()
        count += len(rows["key"])
    context.say(f"topic {topic.name}: {count:,} records")
    return topic


# ---- what is measured


def _part(context: Context, prepared: Prepared, engines: dict[str, Engine], sink: Sink, rounds: int) -> dict[str, Any]:
    runs: dict[str, list[Measured]] = {name: [] for name in engines}
    what = "out" if sink == "kafka" else "in"
    for number in range(rounds):
        for name, engine in engines.items():
            job = replace(engine.job, sink=sink)
            said = f"{what}, {name}, {number + 1}"
            runs[name].append(context.turn(engine, job, said, prepared.workload.batch_rows))
    middle = {name: report.median_rate(found) for name, found in runs.items()}
    typical = {name: _typical(found, middle[name] or 0.0) for name, found in runs.items()}
    natives = [(typical[name], None) for name in ("grouped", "passed")]
    made = report.part(what, prepared.workload.rows, typical["fluxen"], None, natives)
    return made | {
        "difference": None,
        "fluxen_rows_per_s": report.rounded(middle["fluxen"]),
        "spark_rows_per_s": report.rounded(middle["grouped"]),
        "passed_rows_per_s": report.rounded(middle["passed"]),
        "ratio": report.ratio(middle["fluxen"], middle["grouped"]),
        "ratio_passed": report.ratio(middle["fluxen"], middle["passed"]),
        "runs": {name: [report.rounded(report.rate(one)) for one in found] for name, found in runs.items()},
    }


def _typical(runs: Sequence[Measured], middle: float) -> Measured:
    return min(runs, key=lambda one: abs((report.rate(one) or 0.0) - middle))


def _checked(context: Context, prepared: Prepared, engine: Engine) -> Comparison | None:
    """The results of a run that writes them to files; what timed runs compute is dropped or sent."""
    again = context.turn(engine, replace(engine.job, sink="parquet"), "checked", prepared.workload.batch_rows)
    if not again.outcome.finished:
        return None
    columns = oracle.our_columns("running")
    results = parquet_relation(again.job.out, columns)
    found = compare(context.connection, "SELECT * FROM expected", results, columns, tolerance=TOLERANCE)
    verdict = "equal the oracle's" if found.equal else f"DIFFER from the oracle's: {found.detail}"
    context.say(f"  results {verdict} ({found.expected_rows:,} rows)")
    return found
