"""Tasks that fail and run again: Spark retries them, and nothing is counted twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fluxen.testing.streams import append
from tests.spark.rows import events

pytestmark = pytest.mark.spark


def test_results_are_right_when_tasks_fail_once_and_are_retried(tmp_path):
    keys = [[1, 2, 2, 3, 5, 8], [1, 1, 2, 13, 5], [8, 8, 8]]
    for number, batch in enumerate(keys):
        append(tmp_path / "input", number, events(batch, [0] * len(batch), [0] * len(batch)))
    command = [sys.executable, str(Path(__file__).with_name("retry_driver.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    expected = Counter(str(key) for batch in keys for key in batch)
    assert json.loads((tmp_path / "seen.json").read_text()) == {"operator": expected, "aggregate": expected}
    assert (tmp_path / "operator-flag").exists()
    assert (tmp_path / "aggregate-sink").exists()
