"""The server that is attacked: every kind of function, and what it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.wire.server import ServerProcess

HOSTILE, PARTNER, BYSTANDER, INFINIBAND = "x", "y", "b", "ib"
"""Names of guests: the hostile one has the functions of its partner, too."""
_LINE = re.compile(
    r"^(Traceback \(most recent call last\)|.*\bfailed \(\d+ so far\))", re.MULTILINE
)
_OWN = re.compile(r"^(?:RssAnon|VmSwap):\s+(\d+) kB", re.MULTILINE)


@contextmanager
def attacked(folder: Path, bridge: str) -> Iterator[ServerProcess]:
    """A device server with HCAs of both links, a `bridge` model's two sides, two DMA engines."""
    words = ["--ntb-model", bridge, "--log", str(folder / "log")]
    for name in (HOSTILE, BYSTANDER):
        words += ["--hca", f"name={name},socket={folder / f'hca-{name}'}"]
    words += ["--hca", f"name={INFINIBAND},socket={folder / INFINIBAND},link=infiniband"]
    for name in (HOSTILE, PARTNER):
        words += ["--ntb", f"name={name},socket={folder / f'ntb-{name}'}"]
        words += ["--dma", f"name={name},socket={folder / f'dma-{name}'}"]
    server = ServerProcess("bluebridge.device", words, folder / "server.log")
    try:
        yield server
    finally:
        server.kill()


def exceptions(server: ServerProcess) -> int:
    """Exceptions that reached a callback of library, loop or fabric, as the server logged them."""
    return len(_LINE.findall(server.text()))


def own_memory(server: ServerProcess) -> int:
    """Bytes of the server's own memory, swapped or not: without that of guests, which is shared."""
    return sum(map(int, _OWN.findall(Path(f"/proc/{server.pid}/status").read_text()))) << 10
