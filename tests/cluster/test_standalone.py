"""A standalone cluster started with the commands that the documentation gives, and a job submitted to it; `make
standalone`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.docs.pages import ROOT, text_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]
PAGE = "docs/running-on-a-cluster.md"
JOB = """
import json, sys
from pathlib import Path
import pyarrow as pa
import fluxen as fx
from fluxen.testing import feed

place = Path(sys.argv[1])
spark = fx.session("submitted")
batches = [pa.table({"k": [n % 5 for n in range(100)], "v": [batch] * 100}) for batch in range(3)]
query = fx.aggregate(feed(spark, batches, place / "input"), by="k", n=fx.count(), total=fx.sum("v")).adapt(sites=2)
found = {}
writer = query.writeStream.foreachBatch(lambda rows, epoch: found.update({r.k: [r.n, r.total] for r in rows.collect()}))
run = writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start()
run.awaitTermination()
conf = spark.sparkContext.getConf()
seen = {
    "found": found,
    "master": spark.sparkContext.master,
    "locality": conf.get("spark.locality.wait"),
    "sockets": conf.get("spark.python.unix.domain.socket.enabled"),
    "executors": sorted({site["executor"] for epoch in run.epochs for site in epoch["stages"][0]["sites"]}),
}
(place / "seen.json").write_text(json.dumps(seen))
spark.stop()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(start: str, ports: dict[str, int]) -> list[str]:
    """The page's line that contains `start`, on ports of our own."""
    (line,) = [line for line in text_of(PAGE).splitlines() if line.startswith("$SPARK_HOME") and start in line]
    for given, port in ports.items():
        line = line.replace(given, str(port))
    return shlex.split(line.replace("$SPARK_HOME", str(Path(pyspark.__file__).parent)))


@contextmanager
def running(words: list[str], env: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(words, env=env, stdout=file, stderr=file, start_new_session=True)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + 90
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)


def test_a_submitted_job_runs_on_the_workers_with_the_settings_it_was_given(tmp_path: Path) -> None:
    ports = {"7077": free_port(), "8080": free_port()}
    env = {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(tmp_path / "spark"),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_NO_DAEMONIZE": "1",
    }
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "input").mkdir()
    master, workers = tmp_path / "master.log", [tmp_path / "worker-0.log", tmp_path / "worker-1.log"]
    worker = command("worker.Worker", ports)
    with running(command("master.Master", ports), env, master):
        wait_for(master, "New state: ALIVE")
        with running(worker, env, workers[0]), running(worker, env, workers[1]):
            for log in workers:
                wait_for(log, "Successfully registered with master")
            submit = command("spark-submit", ports)[:-1]
            more = ["--conf", "spark.locality.wait=700ms", "--conf", "spark.executor.memory=512m"]
            env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), env["PYTHONPATH"]])
            done = subprocess.run(
                [*submit, *more, str(tmp_path / "job.py"), str(tmp_path)], env=env, capture_output=True, text=True
            )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["master"] == f"spark://127.0.0.1:{ports['7077']}"
    assert seen["locality"] == "700ms"  # what spark-submit was given wins over fluxen's own
    assert seen["sockets"] == "true"
    assert seen["found"] == {str(key): [60, 60] for key in range(5)}
    assert len(seen["executors"]) == 2
