"""Python imports this first in every process of a chaos run, the sites' workers included: it dies where it is told to.

FLUXEN_CHAOS_POINT is "<operation> <prefix> <count>", FLUXEN_CHAOS_COUNTER a file that counts for all processes: at the
count-th such file operation of the whole run (a write leaves half a file behind) the driver's process group is killed,
JVM included. "sending kafka 3" and "sent kafka 3" are before and after the third commit of a transaction. Without the
variables nothing happens.
"""

import os
import signal
from collections.abc import Iterable

POINT = os.environ.get("FLUXEN_CHAOS_POINT", "")


def _arm() -> None:
    from fluxen.state.store import Store

    operation, prefix, count = POINT.split()
    counter = os.environ["FLUXEN_CHAOS_COUNTER"]
    write, create, delete = Store.write, Store.create, Store.delete

    def reached(name: str) -> bool:
        if not name.startswith(prefix) or name.endswith(".tmp"):
            return False
        with open(counter, "ab") as file:
            file.write(b".")
            return file.tell() == int(count)

    def die() -> None:
        os.killpg(os.getsid(0), signal.SIGKILL)  # the driver leads the session and its own process group
        os.kill(os.getpid(), signal.SIGKILL)

    def dying_write(store: Store, name: str, data: bytes | Iterable[bytes]) -> None:
        if reached(name):
            whole = data if isinstance(data, bytes) else b"".join(data)
            store._write(name, [whole[: len(whole) // 2]])
            die()
        write(store, name, data)

    def dying_before(store: Store, name: str, data: bytes, via: str | None = None) -> bool:
        if reached(name):
            die()
        return create(store, name, data, via)

    def dying_after(store: Store, name: str, data: bytes, via: str | None = None) -> bool:
        made = create(store, name, data, via)
        if reached(name):
            die()
        return made

    def dying_delete(store: Store, name: str) -> None:
        delete(store, name)
        if reached(name):
            die()

    if operation in ("sending", "sent"):
        from fluxen.spark.sinks.producer import SiteProducer

        commit = SiteProducer._commit

        def dying_commit(producer: SiteProducer, epoch: int) -> None:
            if operation == "sending" and reached(prefix):
                die()
            commit(producer, epoch)
            if operation == "sent" and reached(prefix):
                die()

        SiteProducer._commit = dying_commit

    Store.write = {"write": dying_write}.get(operation, write)
    Store.create = {"before": dying_before, "after": dying_after}.get(operation, create)
    Store.delete = {"delete": dying_delete}.get(operation, delete)


if POINT:
    _arm()
