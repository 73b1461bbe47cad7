"""The description of the machine on which the bench was run, for its page."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostDescription:
    """The processor, memory and system of the machine that a run took place on."""

    cpu: str
    cores: int
    memory_gib: int
    system: str
    accelerator: str
    date: str

    @classmethod
    def here(cls, accelerator: str) -> HostDescription:
        """Return the description of this machine at present."""
        return cls(
            _cpu_model(),
            len(os.sched_getaffinity(0)),
            round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
            f"{platform.freedesktop_os_release().get('PRETTY_NAME')}, Linux {platform.release()}, "
            f"Python {platform.python_version()}",
            accelerator,
            time.strftime("%Y-%m-%d"),
        )

    def rows(self) -> list[tuple[str, str]]:
        """Return pairs of label and value for a table."""
        return [
            ("processor", self.cpu),
            ("cores", str(self.cores)),
            ("memory", f"{self.memory_gib} GiB"),
            ("system", self.system),
            ("accelerator", self.accelerator),
            ("date", self.date),
        ]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
