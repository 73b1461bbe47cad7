"""`bluebridge cache export`: whether the file has the compiled device server, and what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.compiled import PURE
from bluebridge.host_tools import cli
from bluebridge.images.report import ImageError

NO_COMPILER = ImageError("there is no C compiler", "apt-get install gcc")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """Calls of the compiler of a checkout for which nobody has compiled, and which exports."""
    calls: list[object] = []
    monkeypatch.delenv(PURE, raising=False)
    monkeypatch.setenv("BLUEBRIDGE_CACHE", str(tmp_path))
    monkeypatch.setattr("bluebridge.hot_modules.DEVICE.build", lambda: None)
    monkeypatch.setattr("bluebridge.images.device_build.ensure", lambda *_: calls.append(1))
    monkeypatch.setattr("bluebridge.host_tools.lab.portable.finished", lambda *_: ([], None))
    monkeypatch.setattr("bluebridge.images.exchange.pack", lambda *words: words[2].touch())
    return calls


def test_export_compiles_what_another_checkout_has_removed(
    compiled: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cache", "export", str(tmp_path / "file")]) == 0
    assert len(compiled) == 1
    assert "note:" not in capsys.readouterr().out


def test_an_export_without_a_compiler_says_what_lacks(
    compiled: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object) -> None:
        raise NO_COMPILER

    monkeypatch.setattr("bluebridge.images.device_build.ensure", fails)
    assert cli.main(["cache", "export", str(tmp_path / "file")]) == 0
    told = capsys.readouterr().out
    assert "runs interpreted: there is no C compiler; to mend it: apt-get install gcc" in told


def test_an_interpreted_export_says_so(
    compiled: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(PURE, "1")
    assert cli.main(["cache", "export", str(tmp_path / "file")]) == 0
    assert compiled == []
    assert "note: no compiled modules, as BLUEBRIDGE_PURE is set" in capsys.readouterr().out


def test_an_interpreted_export_of_a_compiled_checkout_has_its_modules(
    compiled: list[object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They are in the cache, and so in the file: nothing is to be noted."""
    monkeypatch.setenv(PURE, "1")
    monkeypatch.setattr("bluebridge.hot_modules.DEVICE.build", lambda: str(tmp_path))
    assert cli.main(["cache", "export", str(tmp_path / "file")]) == 0
    assert "note:" not in capsys.readouterr().out
