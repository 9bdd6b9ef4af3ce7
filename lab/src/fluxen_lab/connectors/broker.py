"""A Kafka broker of one process on this machine, started and ended by whoever needs it; its files come from `jars`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from types import TracebackType

from fluxen.errors import PlatformError
from fluxen_lab.connectors.jars import BROKER, fetched

__all__ = ["Broker"]

_START_S = 90.0
_PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{control}
log.dirs={logs}
num.partitions=2
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
log.cleaner.enable=false
"""


class Broker:
    """Keeps its data in a directory, so that it can be killed and started again."""

    def __init__(self, directory: Path, *, java: tuple[str, ...] = ("-Xmx512m", "-XX:+UseSerialGC")) -> None:
        self.directory = directory
        self.port, control = _free_ports(2)
        self._java, self._process = java, None
        self._classes = os.pathsep.join(map(str, fetched(BROKER)))
        directory.mkdir(parents=True, exist_ok=True)
        self._properties = directory / "server.properties"
        logs = directory / "data"
        self._properties.write_text(_PROPERTIES.format(port=self.port, control=control, logs=logs), encoding="utf-8")
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties))

    _process: subprocess.Popen[bytes] | None

    @property
    def servers(self) -> str:
        """What clients are told."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        shutil.rmtree(self.directory / "data", ignore_errors=True)

    def start(self) -> None:
        """Start it and wait until it serves."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the test, which ends the broker itself
            )
        end = time.monotonic() + _START_S
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise PlatformError(f"the Kafka broker did not start; its log is {self._log}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL, as a machine that fails."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def _log(self) -> Path:
        return self.directory / "broker.log"

    def _command(self, *arguments: str) -> list[str]:
        return ["java", *self._java, "-cp", self._classes, *arguments]

    def _run(self, *arguments: str) -> None:
        ran = subprocess.run(self._command(*arguments), capture_output=True, text=True, check=False)
        if ran.returncode:
            raise PlatformError(f"the Kafka broker's directory cannot be made: {(ran.stderr or ran.stdout)[-300:]}")


def _answers(port: int) -> bool:
    """Whether a broker tells its versions: it does once it serves."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        return len(connection.recv(4)) == 4
    return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]
