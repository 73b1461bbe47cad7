"""What of the guest's kernel log the agent copies to the transcript."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bluebridge.guest.agent.loop import Loop
from bluebridge.guest.agent.server import KernelErrors, error_line


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            b"3,812,12345678,-;mlx4_core: failed\n SUBSYSTEM=pci\n",
            b"[   12.345678] mlx4_core: failed\n",
        ),
        (b"2,1,5,-,caller=T1;critical\n", b"[    0.000005] critical\n"),
        (b"11,1,5,-;a program's error\n", b"[    0.000005] a program's error\n"),
        (b"1,1,5,-;the console has it\n", None),
        (b"4,1,5,-;a warning\n", None),
        (b"6,1,5,-;information\n", None),
        (b"", None),
        (b"three,1,5,-;x\n", None),
        (b"3;x\n", None),
    ],
)
def test_errors_are_lines_and_nothing_else_is(record: bytes, line: bytes | None) -> None:
    assert error_line(record) == line


def test_errors_are_copied_to_the_second_serial_line(tmp_path: Path) -> None:
    """A pipe stands for the kernel's log; whoever reads one of its records gets all."""
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    (tmp_path / "dev/ttyS1").touch()
    writer = os.open(tmp_path / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
    loop = Loop()
    KernelErrors(loop, str(tmp_path))
    for record in (b"3,1,1000000,-;first\n", b"6,2,2000000,-;nothing\n", b"3,3,3000000,-;third\n"):
        os.write(writer, record)
        loop.run_once()
    os.close(writer)
    assert (tmp_path / "dev/ttyS1").read_bytes() == b"[    1.000000] first\n[    3.000000] third\n"


def test_a_machine_without_a_second_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").touch()
    with pytest.raises(FileNotFoundError):
        KernelErrors(Loop(), str(tmp_path))
