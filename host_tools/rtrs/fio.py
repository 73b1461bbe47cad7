"""Runs fio in a guest: random reads and writes whose contents are verified."""

from __future__ import annotations

import errno
import json
import shlex
from dataclasses import dataclass
from typing import Any

from bluebridge.host_tools.agent.guest_command import Command
from bluebridge.host_tools.errors import LabError, understood
from bluebridge.host_tools.machine.vm import Vm

_OUTPUT = "/tmp/fio-verify.json"
_MIB = 1 << 20
_GRACE_SECONDS = 120.0
"""The seconds after which a session has surely given up a path and its requests."""
_WORDS = (
    "--rw=randrw",
    "--bsrange=4k-64k",
    "--iodepth=16",
    "--ioengine=libaio",
    "--direct=1",
    "--time_based",
    "--size=64M",
    "--verify=crc32c",
    "--verify_backlog=64",
    "--verify_fatal=1",
    "--output-format=json",
)


@dataclass(frozen=True)
class Found:
    """The figures of one run of fio. Errors are 0 or 1: fio ends at the first."""

    io_errors: int
    verify_errors: int
    read_rate: float
    """The rate of reads in MiB/s."""
    write_rate: float

    @property
    def ok(self) -> bool:
        """Whether there was no error and something was written."""
        return not self.io_errors and not self.verify_errors and self.write_rate > 0


class Verification:
    """A run of fio on a block device for `seconds`."""

    def __init__(self, machine: Vm, device: str, seconds: float) -> None:
        self._machine = machine
        words = [
            "fio",
            "--name=verify",
            f"--filename={device}",
            f"--runtime={max(1, round(seconds))}",
        ]
        line = shlex.join([*words, *_WORDS, f"--output={_OUTPUT}"])
        machine.run(f"rm -f {_OUTPUT}")
        self._command: Command = machine.agent.start(line, seconds + _GRACE_SECONDS)

    def finish(self) -> Found:
        """Wait for the end of fio; return its figures.

        Raises `LabError` when it left no result, or did not end in time.
        """
        done = self._command.wait()
        text = self._machine.run(f"cat {_OUTPUT}", check=False).text
        said = done.stdout + done.stderr
        # fio writes messages into the same file, in front of the object.
        start = text.find("{")
        if start < 0:
            raise LabError("fio left no result", "", text + said.decode(errors="replace"))
        with understood(f"guest {self._machine.name}: fio"):
            return found_in(json.loads(text[start:])["jobs"][0])

    def kill(self) -> None:
        """Kill fio at once."""
        self._command.kill()


def found_in(job: dict[str, Any]) -> Found:
    """Return the figures of a job in fio's JSON."""
    wrong = job["error"] == errno.EILSEQ
    return Found(
        io_errors=int(bool(job["error"]) and not wrong),
        verify_errors=int(wrong),
        read_rate=job["read"]["bw_bytes"] / _MIB,
        write_rate=job["write"]["bw_bytes"] / _MIB,
    )
