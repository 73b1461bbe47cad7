"""The attacks: each makes about so many accesses through a guest, and says how many they were.

An access is a message of vfio-user, a work request, a descriptor or a firmware command. Work that
outlives its attack, such as endless descriptors and messages of 1 GiB, goes on beside the others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from bluebridge.device.layout import ioat
from bluebridge.device.layout.ioat import DESCRIPTOR
from bluebridge.device.layout.mlx4.uar import NUM_UARS, PAGE_SIZE, SEND_DOORBELL
from bluebridge.device.layout.net.roce import GSI_QKEY
from bluebridge.device.server.settings import MAC_PREFIX
from bluebridge.guest.drivers.common.gid_table import link_local_gid
from bluebridge.guest.drivers.hca.resources.commands import FirmwareError
from bluebridge.guest.verbs import (
    QpInit,
    QpState,
    QpType,
    RecvWr,
    SendWr,
    Sge,
    VerbsError,
    WrOpcode,
)
from bluebridge.host_tools.vfio_user.bus import RAM_BASE
from bluebridge.host_tools.vfio_user.connection import CONFIG
from tests.fuzz import mutate, sockets
from tests.fuzz.steps import CORPUS, BytesLeft, decode
from tests.hostile import files
from tests.hostile.guest import (
    BRIDGE_BARS,
    ENGINE_BAR,
    HCA_BARS,
    INFINIBAND,
    Access,
    HostileGuest,
    forget_replies,
    send,
)
from tests.models.players import ALL, PSN, QKEY, SIZE, Player
from tests.models.server import next_client

Attack = Callable[[HostileGuest, int], int]

BATCH: Final = 64
REGIONS: Final = (0, 0xB000, 0x14000, 0x75000, 0x10000, 0x134000, 0x80680, 0xF0010)
"""Where registers are."""
TARGETS: Final = (RAM_BASE, *BRIDGE_BARS.values(), *HCA_BARS.values(), ENGINE_BAR, 0xFEE00000, 0)
"""Where descriptors may point to."""
_INPUTS: Final = [path.read_bytes() for path in (CORPUS / "sockets").iterdir()]
"""Inputs that fuzzers have found worth keeping: steps of clients."""
BYSTANDER_MAC: Final = MAC_PREFIX + b"\2"


def registers(guest: HostileGuest, count: int) -> int:
    """Stores and loads all over the BARs and config spaces of bridges, engines and an HCA."""
    done = 0
    while done < count:
        asked = [
            (client, send(client, [_access(guest, sizes) for _ in range(BATCH)]))
            for client, sizes in guest.clients
        ]
        for client, replies in asked:
            forget_replies(client, replies)
        done += BATCH * len(asked)
    return done


def _access(guest: HostileGuest, sizes: dict[int, int]) -> Access:
    chance = guest.chance
    width = chance.choice((1, 2, 4, 4, 4, 8, 8, 64))
    kind = chance.getrandbits(5)
    if not kind:
        return CONFIG, 0x40 + chance.randrange(0xFC0), chance.randint(1, 8), False
    region = chance.choice([*sizes])
    offset = chance.randrange(sizes[region])
    if kind & 1:
        offset = chance.choice(REGIONS) + chance.randrange(0x400)
    if kind & 6:
        return region, offset, chance.randbytes(width), True
    return region, offset, width if kind & 8 else chance.randbytes(width), False


def doorbells(guest: HostileGuest, count: int) -> int:
    """Rings of queues that exist and of others, on pages of theirs and of others."""
    chance, client = guest.chance, guest.bus.client
    known = [player.qp.qpn for player in (*guest.players, guest.datagrams)]
    for _ in range(-(-count // BATCH)):
        accesses: list[Access] = []
        for _ in range(BATCH):
            page = guest.ctx.adapter.uar if chance.getrandbits(2) else chance.randrange(NUM_UARS)
            offset = SEND_DOORBELL if chance.getrandbits(1) else 4 * chance.randrange(1024)
            value = chance.choice(known) << 8 if chance.getrandbits(2) else chance.getrandbits(32)
            accesses.append((2, page * PAGE_SIZE + offset, value.to_bytes(4, "big"), True))
        send(client, accesses)
    guest.bus.settle()
    return -(-count // BATCH) * BATCH


def entries(guest: HostileGuest, count: int) -> int:
    """Send queue entries of random bytes, some of which name memory that there is."""
    chance, (a, b) = guest.chance, guest.players
    data, stride = a.hca_qp.data, 1 << a.hca_qp.sq_shift
    slots = 16
    for _ in range(-(-count // slots)):
        if a.qp.query_state() is not QpState.RTS or b.qp.query_state() is not QpState.RTS:
            a.reconnect(b)
            b.reconnect(a)
            a.cq.poll(256)
        for slot in range(slots):
            entry = bytearray(chance.randbytes(stride))
            entry[0] &= 0x7F
            entry[3] = chance.choice((0, 1, 8, 9, 0xA, 0xB, 0x10, 0x11, 0x12, 0x18, 0x19, 0x1B))
            entry[4:8] = chance.randint(0, stride // 16).to_bytes(4, "big")
            if chance.getrandbits(1):
                entry[16:28] = b.address.to_bytes(8, "big") + b.mr.rkey.to_bytes(4, "big")
            data[slot * stride : (slot + 1) * stride] = entry
        guest.bus.write32(2, guest.ctx.adapter.uar * PAGE_SIZE + SEND_DOORBELL, a.qp.qpn << 8)
    return -(-count // slots) * slots


def long_messages(guest: HostileGuest, count: int) -> int:
    """Messages of all of `guest.long`: they move on while others attack."""
    a, b = guest.long_players
    if QpState.ERR in (a.qp.query_state(), b.qp.query_state()):
        a.reconnect(b)
        b.reconnect(a)
    ours, theirs = (Sge(guest.long_address, guest.long, key.lkey) for key in guest.long_keys)
    done = 0
    with suppress(VerbsError):  # the queue is full
        while done < count:
            a.cq.poll(256)
            b.cq.poll(256)
            opcode = guest.chance.choice((WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND))
            request = SendWr(1, opcode, [ours])
            request.remote_addr, request.rkey = guest.long_address, guest.long_keys[1].rkey
            if opcode is WrOpcode.SEND:
                b.qp.post_recv(RecvWr(1, [theirs]))
            a.qp.post_send(request)
            done += 1
    return done


def receivers_that_are_never_ready(guest: HostileGuest, count: int) -> int:
    """Sends of many queue pairs to receivers that wait for ever, with RNR timer code 0."""
    a = guest.players[0]
    init = QpInit(QpType.RC, a.cq, a.cq, 4, 4)
    there = guest.ctx.address_vector(guest.ctx.address)
    done = 0
    while len(guest.deaf) < guest.not_ready and done < count:
        pair = [a.pd.create_qp(init) for _ in range(2)]
        for own, other in (pair, pair[::-1]):
            own.modify_init(ALL)
            own.modify_rtr(there, other.qpn, PSN, min_rnr_timer=0)
            own.modify_rts(PSN, rnr_retry=7)
        pair[0].post_send([SendWr(n, WrOpcode.SEND, [a.sge(0, 64)]) for n in range(4)])
        guest.deaf += pair
        done += 4
    return done


def datagrams(guest: HostileGuest, count: int) -> int:
    """Datagrams to any queue pair of the bystander, management ones and their queues included."""
    chance, player = guest.chance, guest.datagrams
    there = guest.ctx.address_vector(link_local_gid(BYSTANDER_MAC) + BYSTANDER_MAC)
    player.view[:] = chance.randbytes(SIZE)
    for _ in range(count):
        request = SendWr(1, WrOpcode.SEND, [player.sge(chance.randrange(1024), 256)])
        request.address_vector = there
        request.remote_qpn = chance.choice((0, 1, chance.getrandbits(24)))
        request.remote_qkey = chance.choice((GSI_QKEY, QKEY))
        _post(player, request)
    return count


def frames(guest: HostileGuest, count: int) -> int:
    """Frames of random bytes to the bystander and to all, from its address and from others."""
    chance, player = guest.chance, guest.frames
    addresses = (BYSTANDER_MAC, b"\xff" * 6, guest.ctx.ethernet_port.mac)
    for number in range(count):
        at = 2048 * (number % 16)
        length = chance.randint(1, 1514)
        frame = chance.choice(addresses) + chance.choice(addresses) + chance.randbytes(length)
        player.view[at : at + length] = frame[:length]
        _post(player, SendWr(1, WrOpcode.SEND, [player.sge(at, length)]))
    return count


def _post(player: Player, request: SendWr) -> None:
    """Post it, when the queue has room again."""
    while True:
        player.cq.poll(256)
        try:
            player.qp.post_send(request)
        except VerbsError:
            player.device.query_port()  # a command: the server goes on meanwhile
        else:
            return


def chains(guest: HostileGuest, count: int) -> int:
    """Rings of descriptors without an end, between memory and the registers of other functions."""
    chance, done = guest.chance, 0
    while done < count:
        engine = chance.choice(guest.engines)
        ring = engine.allocate(BATCH * 64)
        describe = chance.choice((_endless_descriptor, _descriptor))
        for slot in range(BATCH):
            link = ring.address + 64 * chance.randrange(BATCH)
            ring.view[64 * slot : 64 * slot + 64] = describe(guest, link)
        channel = ioat.CHANNEL_BASE * (1 + chance.randrange(ioat.MOST_CHANNELS))
        engine.store(0, channel + 0x04, 1, ioat.ChannelCommand.RESET)
        engine.store(0, channel + 0x18, 8, ring.address + 0x40)
        engine.store(0, channel + 0x10, 8, ring.address)
        engine.store(0, channel + 0x06, 2, chance.getrandbits(16))
        done += BATCH
        ring.free()
    return done


def _endless_descriptor(guest: HostileGuest, link: int) -> bytes:
    """A copy of all registers of an HCA, eight bytes at a time, which never fails."""
    target = RAM_BASE + (8 << 20)
    return bytes(DESCRIPTOR.pack(size=1 << 20, source=HCA_BARS[0], destination=target, next=link))


def _descriptor(guest: HostileGuest, link: int) -> bytes:
    chance = guest.chance
    source, target = (chance.choice(TARGETS) + chance.getrandbits(16) for _ in range(2))
    size = chance.choice((8, 64, 65536, 1 << 20, chance.getrandbits(32)))
    operation = 0 if chance.getrandbits(3) else chance.getrandbits(8)
    values = {"size": size, "operation": operation, "source": source, "destination": target}
    return bytes(DESCRIPTOR.pack(values, next=link, completion_write=chance.getrandbits(1)))


def clients(guest: HostileGuest, count: int) -> int:
    """Clients of the InfiniBand adapter, and of functions that have one, as fuzzers draw them."""
    paths = [guest.folder / name for name in (INFINIBAND, "hca-x", "hca-b", "ntb-x", "dma-y")]
    guest.infiniband.close()
    several = sockets.Clients(paths, lambda: None)
    done, change = 0, mutate.mutator("sockets")
    while done < count:
        data = change(guest.chance.choice(_INPUTS), 1 << 14, guest.chance.getrandbits(32))
        for step in decode(sockets.FORMS, BytesLeft(data[mutate.STARTS["sockets"] :])):
            several.take(step)
            done += 1
    several.close()
    guest.infiniband = next_client(paths[0])
    return done


def commands(guest: HostileGuest, count: int) -> int:
    """Firmware commands of any opcode with any mailbox: seldom survived by the driver."""
    chance, run = guest.chance, guest.ctx.adapter.commands.run
    for _ in range(count):
        opcode = chance.choice((*range(0x70), 0xFF6, *range(0xFF9, 0x1000)))
        modifier = chance.choice((0, 1, 2, 8, 0x48, chance.getrandbits(32)))
        data = chance.randbytes(4096) if chance.getrandbits(1) else bytes(4096)
        with suppress(FirmwareError):
            run(opcode, modifier, chance.randrange(16), data=data)
    return count


def hca_registers(guest: HostileGuest, count: int) -> int:
    """Stores and loads all over the HCA, its command register and doorbells included."""
    client, sizes = guest.bus.client, {0: 1 << 20, 2: 8 << 20}
    for _ in range(-(-count // BATCH)):
        forget_replies(client, send(client, [_access(guest, sizes) for _ in range(BATCH)]))
    return -(-count // BATCH) * BATCH


SLICES: Final[dict[Attack, int]] = {
    receivers_that_are_never_ready: 1200,
    long_messages: 8,
    chains: 256,
    registers: 4096,
    doorbells: 2048,
    entries: 256,
    datagrams: 512,
    frames: 512,
    clients: 64,
    files.long_reads: 64,
    files.slow_closes: 12,
    files.much_memory: 2,
    files.blocking_eventfds: 8,
}
"""Accesses of one turn of each attack that leaves a driver alive, roughly."""
LAST: Final[dict[Attack, int]] = {commands: 256, hca_registers: 4096}
"""Those that a guest's life ends with."""
