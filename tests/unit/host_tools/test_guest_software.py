"""Which kernel and which files guests get: options, environment, the user's choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab import software
from bluebridge.host_tools.lab.software import GuestSoftware


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No choice, no environment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("BLUEBRIDGE_CACHE", str(tmp_path / "cache"))
    for name in ("KERNEL", "MODULES", "OVERLAY"):
        monkeypatch.delenv(f"BLUEBRIDGE_{name}", raising=False)


def test_option_before_environment_before_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert GuestSoftware().chosen().kernel == "debian-13"
    software.choose("backports")
    assert GuestSoftware().chosen().kernel == "backports"
    monkeypatch.setenv("BLUEBRIDGE_KERNEL", "6.1")
    monkeypatch.setenv("BLUEBRIDGE_MODULES", "/modules")
    assert GuestSoftware().chosen() == GuestSoftware("6.1", Path("/modules"))
    assert GuestSoftware("6.12").chosen() == GuestSoftware("6.12")
    monkeypatch.delenv("BLUEBRIDGE_KERNEL")
    software.choose("debian-13")
    assert GuestSoftware().chosen().kernel == "debian-13"


def test_an_overlay_of_the_environment_counts_where_none_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BLUEBRIDGE_OVERLAY", "/mine")
    assert GuestSoftware("6.1").chosen().overlay == Path("/mine")
    assert GuestSoftware("6.1", overlay=Path("/other")).chosen().overlay == Path("/other")


@pytest.mark.parametrize(
    ("name", "told"),
    [("my", "there is no kernel my yet"), ("7.99", "there is no kernel 7.99; name an image, or")],
)
def test_a_kernel_that_is_not_there_is_not_chosen(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        software.choose(name)
    assert software.choice() == "debian-13"


def test_versions_are_names_of_debians_kernels() -> None:
    assert software.checked("6.1") == "debian-12"
    assert software.checked("debian-13") == "debian-13"
    assert software.debian_kernel("") is None


def test_modules_belong_to_a_kernel() -> None:
    with pytest.raises(UsageError, match="--modules belong to a kernel"):
        GuestSoftware(modules=Path("/modules")).chosen()
