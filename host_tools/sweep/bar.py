"""The progress of a sweep: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bluebridge.host_tools.progress import Reporter
from bluebridge.host_tools.sweep.rows import Row

_LINES = 20
"""The number of progress lines of a whole sweep where there is no terminal."""


class Bar:
    """Context manager; calling it prints a line above the bar, as `Reporter` does."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        """Prepare the bar of a sweep in which `total` rows are to be measured."""
        console = Console(stderr=True, quiet=quiet)
        self._terminal = console.is_terminal and not quiet
        self._report = Reporter(quiet=quiet)
        self._total, self._done, self._told = total, 0, 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not self._terminal,
        )
        self._task = self._bar.add_task("sweep", total=total)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, message: str) -> None:
        """Print one line about something else than a row."""
        if self._terminal:
            self._bar.console.print(message, highlight=False, markup=False)
        else:
            self._report(message)

    def start(self, done: int) -> None:
        """Show that `done` rows have been measured already."""
        self._done = self._told = done
        self._bar.update(self._task, completed=done)

    def row(self, row: Row) -> None:
        """Count a row."""
        self._done += 1
        text = f"BlueFlame {row.setting}, {row.size} bytes"
        self._bar.update(self._task, completed=self._done, description=text)
        last = self._done == self._total
        if not self._terminal and (last or (self._done - self._told) * _LINES >= self._total):
            self._told = self._done
            self._report(f"{self._done} of {self._total}: {text}: {row.wall.typical:.1f} us")
