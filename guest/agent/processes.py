"""The killing of all processes that a command has started."""

from __future__ import annotations

import contextlib
import os
import signal

_ROUNDS = 10


def kill_session(leader: int) -> None:
    """Send SIGKILL to the group and to the whole session of `leader`, background jobs too.

    `leader` must not have been waited for yet, so that its number is still its own. What made a
    session of its own (`setsid`) wants to stay and does.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(_ROUNDS):  # a fork may be faster than one look
        members = session_members(leader)
        if not members:
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def session_members(leader: int) -> list[int]:
    """Return the living processes whose session is `leader`."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if (found := _state(pid)) and found == (False, leader)]


def _state(pid: int) -> tuple[bool, int] | None:
    """Whether a process is dead or dying of SIGKILL, and its session; None when it is gone.

    proc(5): after the name in parentheses, which may hold anything, come state, parent, group and
    session; a killed process counts as dead only once it is a zombie.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0] in b"ZX", int(fields[3])


def spare_from_oom(pid: int, score: int) -> None:
    """Make the kernel's memory shortage choose (1000) or spare (-1000) a process, if it lets us."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as stream:
        stream.write(str(score))
