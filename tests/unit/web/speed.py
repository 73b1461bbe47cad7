"""How fast the page is on a long log: `python -m tests.unit.web.speed LOG` prints the figures.

A long log: `ib_write_lat -n 100000` between the guests of `bluebridge up --driver kernel`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.unit.web.browser import Browser, browser

STEPS = 5
LATER = 30.0
"""The seconds after which the words of a log should be gathered."""
_SHOWN = "document.querySelectorAll('#steps tr.now').length && !$('named').hidden"
_STEP = """
new Promise(done => {
  const begin = performance.now(), ask = player.fields.bind(player);
  player.fields = async step => { await ask(step); done(performance.now() - begin); };
  player.go(player.at + 1);
})
"""
"""Takes a step and returns the milliseconds until its words and the fields of its bytes stand."""


class _Clock:
    """Tells what passed on the clock and on the server's processor since it was made."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._begin = self._now()

    def _now(self) -> tuple[float, float]:
        user, system = Path(f"/proc/{self._server}/stat").read_text().split()[13:15]
        return time.monotonic(), (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def told(self, what: str) -> None:
        """Print what passed."""
        (begin, used), (now, uses) = self._begin, self._now()
        print(f"{what}: {now - begin:.2f} s, of the server's processor {uses - used:.2f} s")


def _search(page: Browser, server: int, what: str, text: str) -> None:
    clock = _Clock(server)
    page.run(f"$('text').value = {text!r}; $('filters').requestSubmit(); 1")
    while page.text("count").startswith("searching"):
        time.sleep(0.01)
    clock.told(f"{what} ({page.text('count')})")


def _visit(page: Browser, log: Path, wait: float) -> None:
    command = [sys.executable, "-m", "bluebridge.host_tools.cli", "web", str(log), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        clock = _Clock(server.pid)
        try:
            address = server.stdout.readline().split()[-1]
            clock.told("from the command to its address")
            _look(page, server.pid, address, wait)
        finally:
            server.terminate()


def _look(page: Browser, server: int, address: str, wait: float) -> None:
    clock = _Clock(server)
    page.open(address)
    page.wait(_SHOWN)
    clock.told("from the address to the first screen")
    clock = _Clock(server)
    steps = [page.run(_STEP) for _ in range(STEPS)]
    print(f"{STEPS} steps: {', '.join(f'{each:.0f}' for each in steps)} ms")
    clock.told("all of them")
    _search(page, server, "a search for what is nowhere, at once", "nowhere at all")
    time.sleep(wait)
    _search(page, server, f"the same {wait:.0f} s later", "nowhere at all")
    page.run("$('first').value = '900000'; 1")
    _search(page, server, "event 900,000 and what follows", "")


def main(log: Path) -> None:
    """Print the figures of a first visit, and of one after it."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch,
        browser(Path(scratch)) as page,
    ):
        for visit, wait in (("first visit", LATER), ("second visit", 0.0)):
            print(f"{visit}:", flush=True)
            page.open("about:blank")
            _visit(page, log, wait)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
