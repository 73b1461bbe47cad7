"""A guest that is busy in every way at once, as a process of its own so that it can be killed.

    python -m tests.wire.guest_process SOCKET [half]

It prints JSON lines about its two queue pairs, reads two about the peer's, and then prints `busy`:
a send without a receiver, an armed completion queue, registered memory, tables of the port filled.
It goes on reading and writing the peer's memory until killed; with `half` it says half a message
to the server instead, and no more.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.verbs import SendWr, WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.players import PSN, Player

MAC = bytes.fromhex("02bb00000042")
"""Not the burned-in address: a reset must forget it."""
GID = bytes.fromhex("fd00000000000000000000000000beef")


@dataclass
class End:
    """The facts of a queue pair and its memory for the other side; bytes in hexadecimal."""

    device: str
    qpn: int
    address: int
    rkey: int

    @classmethod
    def of(cls, player: Player) -> End:
        """This side's, for the peer."""
        device = player.ctx.address.hex()
        return cls(device, player.qp.qpn, player.address, player.mr.rkey)

    def text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self)) + "\n"


def connect(player: Player, other: End, *, timeout: int = 8, retry_count: int = 1) -> None:
    """RESET to RTS towards a queue pair of another process."""
    player.qp.modify_init(player.access)
    there = player.ctx.address_vector(bytes.fromhex(other.device))
    player.qp.modify_rtr(there, other.qpn, PSN, min_rnr_timer=1)
    player.qp.modify_rts(PSN, timeout=timeout, retry_count=retry_count)


def writes(player: Player, other: End, opcode: WrOpcode = WrOpcode.RDMA_WRITE) -> SendWr:
    """A request that moves the whole memory to or from the other's."""
    return SendWr(1, opcode, [player.sge()], remote_addr=other.address, rkey=other.rkey)


def main() -> None:
    """Be busy until killed."""
    bus = SocketBus(Path(sys.argv[1]))
    ctx = open_hca(bus, MAC)
    ctx.ethernet_port.add_gid(GID)
    player, stuck = Player(ctx, entries=64), Player(ctx)
    sys.stdout.write(End.of(player).text() + End.of(stuck).text())
    sys.stdout.flush()
    peer, deaf = (End(**json.loads(sys.stdin.readline())) for _ in range(2))
    connect(player, peer, timeout=14, retry_count=7)
    connect(stuck, deaf, timeout=14, retry_count=7)
    ctx.adapter.commands.run(Opcode.SET_MCAST_FLTR, 1, 1, param=0x01005E000001)
    stuck.send(WrOpcode.SEND, [stuck.sge()])  # the peer posts no receive: RNR for ever
    player.channel.get_event(0)
    player.cq.req_notify()
    if sys.argv[2:] == ["half"]:
        bus.client.send(bus.client.pack(VfioUserCommand.REGION_READ, bytes(16))[:20])
    print("busy", flush=True)
    if sys.argv[2:]:
        signal.pause()
    both_ways = [writes(player, peer), writes(player, peer, WrOpcode.RDMA_READ)]
    while True:
        player.qp.post_send(both_ways * 8)
        player.wait(16)


if __name__ == "__main__":
    main()
