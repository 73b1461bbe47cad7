"""A console's transcript is watched while it grows."""

from __future__ import annotations

from pathlib import Path

from bluebridge.host_tools.machine.transcript import Transcript

PANIC = b"[    1.0] Kernel panic - not syncing: Fatal exception\r\n"


def test_a_line_that_comes_in_two_parts(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    transcript = Transcript("a", path)
    assert transcript.trouble() is None, "QEMU has not made the file yet"
    path.write_bytes(b"booting\r\n" + PANIC[:20])
    assert transcript.trouble() is None
    path.write_bytes(b"booting\r\n" + PANIC)
    assert "guest a: the guest's kernel panicked" in str(transcript.trouble())


def test_a_guest_that_is_started_anew_is_judged_anew(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(PANIC)
    transcript = Transcript("a", path)
    assert transcript.trouble() is not None
    transcript.skip()
    assert transcript.trouble() is None
