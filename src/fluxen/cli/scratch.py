"""Temporary files of a command, gone when it ends; Spark's log stays if the error that ended it says where it is."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG = "spark.log"


@contextmanager
def scratch(command: str) -> Iterator[Path]:
    """A directory for `command`; the log in it is to be called `LOG`."""
    place = Path(tempfile.mkdtemp(prefix=f"fluxen-{command}-"))
    try:
        yield place
    except Exception as error:
        if str(place) not in str(error):
            shutil.rmtree(place, ignore_errors=True)
        for path in place.glob("*"):
            if path.name != LOG:
                shutil.rmtree(path, ignore_errors=True)
        raise
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    shutil.rmtree(place, ignore_errors=True)
