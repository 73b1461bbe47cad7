"""A sampling profiler of the server: stacks by processor time, for `device.server.control`.

A sample is taken when Python code next runs: the time of a call into C counts for its caller.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL_SECONDS = 0.001
MAX_DEPTH = 40


class Sampler:
    """Counts the stacks found when the process's timer expires.

    Only the main thread may use it.
    """

    def __init__(self) -> None:
        self._stacks: Counter[str] = Counter()

    def start(self) -> None:
        """Start to count stacks, with all counts at zero."""
        self._stacks.clear()
        signal.signal(signal.SIGPROF, self._sample)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def stop(self, file: Path) -> None:
        """End counting and write the stacks to `file`; raises OSError.

        A line is `module.function;module.function;… COUNT`, the outermost function first.
        """
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = (f"{stack} {count}\n" for stack, count in self._stacks.most_common())
        file.write_text("".join(lines))

    def _sample(self, _: int, frame: FrameType | None) -> None:
        names: list[str] = []
        while frame is not None and len(names) < MAX_DEPTH:
            names.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}")
            frame = frame.f_back
        self._stacks[";".join(reversed(names))] += 1
