"""The server that is attacked, and the hostile guest: its functions, its driver, how it leaves."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from bluebridge.device.cards import CONNECTX3
from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.drivers.hca.resources.icm import Profile
from bluebridge.guest.verbs import QpType, QueuePair
from bluebridge.host_tools.vfio_user.bus import Ram, SocketBus
from bluebridge.host_tools.vfio_user.client import Client
from bluebridge.host_tools.vfio_user.connection import CONFIG, NO_REPLY, REPLY
from tests.models.function import WireFunction
from tests.models.players import ALL, Player, connected
from tests.models.server import ServerProcess

HOSTILE, PARTNER, BYSTANDER, INFINIBAND = "x", "y", "b", "ib"
"""Names of guests: the hostile one has the functions of its partner, too."""
_LINE = re.compile(
    r"^(Traceback \(most recent call last\)|.*\bfailed \(\d+ so far\))", re.MULTILINE
)
_OWN = re.compile(r"^(?:RssAnon|VmSwap):\s+(\d+) kB", re.MULTILINE)


@contextmanager
def attacked(folder: Path, bridge: str, card: str = CONNECTX3.name) -> Iterator[ServerProcess]:
    """A device server with HCAs of both links, a `bridge` model's two sides, two DMA engines.

    The hostile guest's HCA is a `card`; with another one than the bystander's there is none for
    InfiniBand.
    """
    # New tries each millisecond cost most: what bounds them is attacked, too.
    words = ["--ntb-model", bridge, "--log", str(folder / "log"), "--rnr", "fast"]
    words += ["--blueflame", "on"]
    for name, kind in ((HOSTILE, card), (BYSTANDER, CONNECTX3.name)):
        words += ["--hca", f"name={name},socket={folder / f'hca-{name}'},card={kind}"]
    if card == CONNECTX3.name:
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


RAM_SIZE = 96 << 20
LOG_MTTS = 20
PAGE = 4096
BLOCK = 2 << 20
HCA_BARS = {0: 0xFC00_0000, 2: 0xF7_A000_0000}
BRIDGE_BARS = {0: 0xF7_8100_0000, 2: 0xF7_8000_0000, 4: 0xF7_8080_0000}
ENGINE_BAR = 0xF7_9000_0000


class HostileGuest:
    """A guest just started, with all functions but the bystander's.

    `players` are connected to each other; `long` bytes are what each of `long_keys` shows, of pages
    that are no neighbours and come again and again. `deaf` are the queue pairs of receivers that
    are never ready and of those that send to them, at most `not_ready`.
    """

    def __init__(self, folder: Path, chance: Random, long: int, not_ready: int) -> None:
        self.folder = folder
        self.chance = chance
        self.not_ready = not_ready
        self.bus = SocketBus(folder / f"hca-{HOSTILE}", Ram(RAM_SIZE))
        self.ctx = open_hca(self.bus, profile=Profile(log_mtts=LOG_MTTS))
        self._place_hca()
        self.ram = Ram()
        self.bridges = [
            WireFunction(folder / f"ntb-{name}", self.ram, BRIDGE_BARS)
            for name in (HOSTILE, PARTNER)
        ]
        self.engines = [
            WireFunction(folder / f"dma-{name}", self.ram, {0: ENGINE_BAR})
            for name in (HOSTILE, PARTNER)
        ]
        self.infiniband = Client(folder / INFINIBAND)
        self.players = connected(self.ctx, self.ctx)
        self.datagrams = Player(self.ctx, QpType.UD)
        self.datagrams.start_datagrams()
        self.frames = Player(self.ctx, QpType.RAW_ETH)
        self.frames.qp.modify_init()
        self.frames.qp.modify_rtr()
        self.frames.qp.modify_rts()
        self.deaf: list[QueuePair] = []
        self._make_long(long)

    def _place_hca(self) -> None:
        for bar, base in HCA_BARS.items():
            for half in (0, 1):
                word = (base >> 32 * half & 0xFFFFFFFF).to_bytes(4, "little")
                self.bus.client.write(CONFIG, 0x10 + 4 * (bar + half), word)

    def _make_long(self, length: int) -> None:
        memory = self.ctx.allocate(BLOCK)
        pages = [memory.address + PAGE * n for n in reversed(range(BLOCK // PAGE))]
        self.long_players = connected(self.ctx, self.ctx)
        self.long = length
        self.long_address = pages[0]
        self.long_keys = [
            player.pd.reg_mr(pages * (length // BLOCK), length, access=ALL)
            for player in self.long_players
        ]

    @property
    def clients(self) -> list[tuple[Client, dict[int, int]]]:
        """Connections that take any access, with the sizes of their BARs."""
        sizes = {0: 1 << 20, 2: 1 << 20, 4: 1 << 20}
        cards = [(card.client, sizes) for card in (*self.bridges, *self.engines)]
        return [*cards, (self.infiniband, {0: 1 << 20, 2: 8 << 20})]

    def leave(self) -> None:
        """Vanish with everything under way; sometimes in the middle of a message."""
        clients = [self.bus.client, self.infiniband]
        clients += [card.client for card in (*self.bridges, *self.engines)]
        self.ctx.opened = False
        for client in clients:
            if self.chance.random() < 0.3:
                with suppress(OSError):
                    client.send(client.pack(VfioUserCommand.REGION_READ, bytes(16))[:20])
            client.close()
        self.bus.close()
        self.ram.close()


Access = tuple[int, int, bytes | int, bool]
"""Region, offset, bytes to write or how many to read, and whether a write is posted."""


def send(client: Client, accesses: list[Access]) -> int:
    """Send accesses in one piece; how many of them are answered."""
    data, replies = [], 0
    for region, offset, what, posted in accesses:
        posted = posted and isinstance(what, bytes)
        length, body = (len(what), what) if isinstance(what, bytes) else (what, b"")
        command = VfioUserCommand.REGION_WRITE if body else VfioUserCommand.REGION_READ
        where = struct.pack("<QII", offset, region, length)
        data.append(client.pack(command, where + body, flags=NO_REPLY if posted else 0))
        replies += not posted
    client.send(b"".join(data))
    return replies


def forget_replies(client: Client, count: int) -> None:
    """Receive so many, errors or not; OSError when the server has hung up."""
    while count:
        count -= client.receive().flags & 0xF == REPLY
