from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fluxen.cli.scratch import LOG, scratch
from fluxen.errors import FluxenError


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.rglob("*") if path.is_file())


def fill(work: Path) -> None:
    (work / "data").mkdir()
    (work / "data" / "rows").write_text("x")
    (work / LOG).write_text("x")


def ended(by: Callable[[Path], BaseException]) -> None:
    with scratch("x") as work:
        fill(work)
        raise by(work)


def test_nothing_is_left_of_a_good_end(tmp_path: Path) -> None:
    with scratch("x") as work:
        fill(work)
    assert list(tmp_path.iterdir()) == []


def test_the_log_is_left_where_the_error_says(tmp_path: Path) -> None:
    with pytest.raises(FluxenError):
        ended(lambda work: FluxenError(f"Spark failed; its log is {work / LOG}"))
    assert left(tmp_path) == [LOG]


@pytest.mark.parametrize("error", [FluxenError("no such column"), KeyboardInterrupt()])
def test_nothing_is_left_of_an_error_that_needs_no_log(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        ended(lambda work: error)
    assert list(tmp_path.iterdir()) == []
