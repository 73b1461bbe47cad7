"""Which lines of a guest's kernel are complaints.

A complaint is whatever the kernel itself calls a warning or worse, and any line that speaks of a
failure, unless it is listed here with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_WARNING = 4
"""KERN_WARNING; smaller numbers are worse."""
_RECORD = re.compile(r"<(\d+)>\[ *[\d.]+\] ?(.*)")
_BAD_WORDS = re.compile(
    r"\b(fail\w*|errors?|timed out|timeout|unable|could not|cannot|can't|bad|warn\w*|refused"
    r"|bug|oops|panic|call trace|stall\w*|blocked for more than|leak\w*|corrupt\w*|unexpected)\b",
    re.IGNORECASE,
)

KNOWN = {
    r"mlx4_en: \S+ Port \d: Using \d+ [TR]X rings$": "mlx4_en_init_netdev tells it with en_warn",
    r"mlx4_en: \S+ Port \d: Initializing port$": "the same",
}
"""Lines of kernels that are well: pattern and reason."""

SLOW_HOST = {
    r"hrtimer: interrupt took \d+ ns$": "hrtimer_interrupt",
    r"perf: interrupt took too long ": "perf_sample_event_took",
    r"workqueue: .* hogged CPU for >\d+us \d+ times": "wq_cpu_intensive_report",
    r"clocksource: ": "clocksource_watchdog, which compares one clock with another",
    r"TSC found unstable after boot": "__sched_clock_work, what the watchdog comes to",
}
"""Messages of kernels whose host gives a virtual processor no time for a while: pattern, source.

They measure with the wall clock; no device has a part in it. How many there were is told.
"""

RECOVERY = {
    r"mlx4_core \S+ Internal error detected:$": "dump_err_buf: what the fault is there for",
    r"mlx4_core \S+   buf\[[0-9a-f]{2}\]: [0-9a-f]{8}$": "the error buffer, word by word",
    r"mlx4_core \S+ device is going to be reset$": "mlx4_enter_error_state",
    r"mlx4_core \S+ crdump: FW doesn't support health buffer access, skipping$": "mlx4_crdump_coll"
    "ect: the emulated firmware has no such dump",
    r"mlx4_core \S+ device was reset successfully$": "mlx4_enter_error_state",
    r"mlx4_en \S+ Internal error detected, restarting device$": "mlx4_en_event",
    r"<mlx4_ib> mlx4_ib_handle_catas_error: mlx4_ib_handle_catas_error (was started|ended)$": "its "
    "own account of ending what user space waits for",
    r"mlx4_core \S+ command 0x(49|54) failed: fw status = 0x1$": "mlx4_en_DUMP_ETH_STATS and "
    "mlx4_get_counter_stats, four times a second, while the device is in its error state: "
    "mlx4_internal_err_ret_value has no answer for them",
    r"mlx4_core \S+ Could not post command 0x(49|54): ret=-5, ": "mlx4_cmd_post for the same two, "
    "if the device enters that state after they were begun",
    r"infiniband \S+ ib_query_port failed \(-5\)$": "ib_cache_update upon the event "
    "DEVICE_FATAL: EIO until the device is restarted, if it asks before its cache goes",
    r"mlx4_core \S+ Fail to set mac in port \d during unregister$": "__mlx4_unregister_mac, while "
    "the device takes no commands",
    r"mlx4_core \S+ Fail to set vlan in port \d during unregister$": "__mlx4_unregister_vlan: "
    "likewise, once 8021q is loaded, which adds VLAN 0",
}
"""Messages that a recovery from a fault prints besides: pattern and reason."""

RECOVERED = ("Internal error detected:", "device was reset successfully", "was ended, ret=0")
"""Without these there was no recovery."""


@dataclass(frozen=True)
class Record:
    """A line of the kernel's log."""

    level: int
    text: str

    @property
    def is_bad(self) -> bool:
        """Whether it is a warning, or sounds like one."""
        return self.level <= _WARNING or _BAD_WORDS.search(self.text) is not None


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Return the records of a text that `dmesg -r` printed. A line without a level is a warning."""
    for line in lines:
        if found := _RECORD.fullmatch(line):
            yield Record(int(found[1]) % 8, found[2])  # the rest of the number is the facility
        elif line.strip():
            yield Record(_WARNING, line)


def slow_host(lines: Iterable[str]) -> int:
    """Count the lines that blame a slow host."""
    texts = [record.text for record in records(lines)]
    return sum(any(re.match(pattern, text) for pattern in SLOW_HOST) for text in texts)


def complaints(lines: Iterable[str], recovering: bool = False) -> list[str]:
    """The lines that no list explains; those of a recovery are explained only where one took place.

    A recovery that is not in the log from beginning to end is a complaint, too.
    """
    lines = list(lines)
    known = [*KNOWN, *SLOW_HOST, *(RECOVERY if recovering else ())]
    found = [
        record.text
        for record in records(lines)
        if record.is_bad and not any(re.match(pattern, record.text) for pattern in known)
    ]
    if recovering:
        told = "\n".join(lines)
        found += [f"the kernel never said: {part}" for part in RECOVERED if part not in told]
    return found
