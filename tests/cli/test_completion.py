from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fluxen.cli.main import COMMANDS, main


def completed(script: str, words: list[str], directory: Path) -> set[str]:
    """What bash would offer for the last of `words`."""
    line = f"""{script}
        COMP_WORDS=({" ".join(f'"{word}"' for word in words)}); COMP_CWORD={len(words) - 1}
        _shtab_fluxen; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    found = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, cwd=directory)
    return set(found.stdout.split())


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", "bash"]) == 0
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_paths(script: str, tmp_path: Path) -> None:
    (tmp_path / "query.toml").touch()
    assert set(COMMANDS) <= completed(script, ["fluxen", ""], tmp_path)
    assert completed(script, ["fluxen", "run", "--j"], tmp_path) == {"--json"}
    assert completed(script, ["fluxen", "run", "qu"], tmp_path) == {"query.toml"}
    assert completed(script, ["fluxen", "bench", "--sc"], tmp_path) == {"--scale"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_that_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    found = capsys.readouterr().out
    assert all(name in found for name in COMMANDS)
