"""The attacks of a hostile guest with a ConnectX-5, which count accesses as all attacks do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count as numbers
from struct import pack
from typing import Final

from bluebridge.device.layout.mlx5 import init_segment
from bluebridge.device.layout.mlx5.commands import BLOCK_BYTES, ENTRY, INPUT, MAILBOX, Opcode
from bluebridge.device.layout.mlx5.contexts import MKC
from bluebridge.device.layout.mlx5.init_segment import CQ_DOORBELL, EQ_ARM, EQ_UPDATE, SEND_DOORBELL
from bluebridge.device.layout.mlx5.objects import ENTRY as CONTEXT_AT
from bluebridge.device.layout.mlx5.objects import LIST
from bluebridge.device.layout.mlx5.steering import Action, Destination
from bluebridge.device.layout.mlx5.wqe import SendOpcode
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.host_tools.vfio_user.bus import RAM_BASE
from bluebridge.host_tools.vfio_user.connection import CONFIG
from tests.hostile import connectx5_rdma as rdma
from tests.hostile.attacks import BATCH, BYSTANDER_MAC
from tests.hostile.connectx5_guest import Connectx5Guest
from tests.hostile.guest import Access, forget_replies, send
from tests.models.mlx5_node import LOG_CQ, LOG_EQ, LOG_SQ, Queue, ethernet

UAR_BYTES: Final = init_segment.UAR_BYTES
MOST_TABLES: Final = 64
ENDING: Final = (Opcode.TEARDOWN_HCA, Opcode.DISABLE_HCA)
"""Commands after which nothing else is possible."""

Attack = Callable[[Connectx5Guest, int], int]


def _batches(guest: Connectx5Guest, count: int, make: Callable[[], list[Access]]) -> int:
    """Send stores in pieces of `BATCH` accesses or more; returns how many there were."""
    done = 0
    while done < count:
        accesses: list[Access] = []
        while len(accesses) < BATCH:
            accesses += make()
        forget_replies(guest.bus.client, send(guest.bus.client, accesses))
        done += len(accesses)
    guest.bus.settle()
    return done


def registers(guest: Connectx5Guest, count: int) -> int:
    """Loads of the whole BAR, stores all over its pages of doorbells, loads of config space."""
    chance = guest.chance

    def access() -> list[Access]:
        width = chance.choice((1, 2, 4, 4, 8, 8, 64))
        if not chance.getrandbits(4):
            return [(CONFIG, chance.randrange(0xFC0), chance.randint(1, 8), False)]
        if not chance.getrandbits(2):
            return [(0, chance.randrange(init_segment.BAR0_SIZE - 64), width, False)]
        page = chance.choice((guest.node.uar, guest.other_uar, chance.randrange(4, 8000)))
        offset = page * UAR_BYTES + chance.randrange(UAR_BYTES - 64)
        return [(0, offset, chance.randbytes(width), True)]

    return _batches(guest, count, access)


def doorbells(guest: Connectx5Guest, count: int) -> int:
    """Rings of queues that exist and of others, on pages of theirs and of others."""
    chance, node = guest.chance, guest.node
    sends = [sq.number for sq in guest.sqs]
    requests = [cq.number for cq in guest.cqs]

    def ring() -> list[Access]:
        page = chance.choice((node.uar, node.uar, guest.other_uar, chance.randrange(4, 8000)))
        kind = chance.randrange(3)
        if kind == 0:
            number = chance.choice(sends) if chance.getrandbits(3) else chance.getrandbits(24)
            return [(0, page * UAR_BYTES + SEND_DOORBELL, pack(">II", 0, number << 8), True)]
        if kind == 1:
            number = chance.choice(requests) if chance.getrandbits(3) else chance.getrandbits(24)
            request = pack(">II", chance.getrandbits(32), number)
            return [(0, page * UAR_BYTES + CQ_DOORBELL, request, True)]
        register = chance.choice((EQ_ARM, EQ_UPDATE))
        number = node.eq if chance.getrandbits(2) else chance.getrandbits(8)
        value = pack(">I", number << 24 | chance.getrandbits(24))
        return [(0, page * UAR_BYTES + register, value, True)]

    return _batches(guest, count, ring)


def entries(guest: Connectx5Guest, count: int) -> int:
    """Send queue entries of random bytes, some nearly right, and records of any value."""
    chance, node = guest.chance, guest.node
    opcodes = (*SendOpcode, 0x77)
    for number in range(-(-count // 16)):
        sq = guest.sqs[number % len(guest.sqs)]
        _restart(guest, sq)
        for _ in range(16):
            rest = chance.randbytes(48)
            if chance.getrandbits(1):
                length = chance.choice((60, 1514, 70000, chance.getrandbits(31)))
                address = guest.buffer + chance.randrange(65536)
                key = node.key if chance.getrandbits(2) else chance.getrandbits(32)
                head = ethernet(checksums=chance.getrandbits(8), mss=chance.getrandbits(11))
                rest = head[:16] + pack(">IIQ", length, key, address)
            size = chance.choice((1, 2, 3, 3, 4, 63, chance.getrandbits(6)))
            node.wqe(sq, rest, chance.choice(opcodes), chance.choice((0, 8)), size)
        if not chance.getrandbits(2):
            queue = chance.choice((*guest.sqs, *guest.rqs, *guest.cqs))
            node.host.poke(queue.record, chance.randbytes(8))
        node.ring(sq)
    return -(-count // 16) * 16


def _restart(guest: Connectx5Guest, sq: Queue) -> None:
    """Take an SQ back into service and empty its CQ."""
    node = guest.node
    for known, wanted in ((3, 0), (1, 0), (0, 1)):
        with suppress(Refused):
            node.modify_sq(sq.number, known, wanted)
    sq.posted = 0
    assert sq.cq is not None
    node.host.poke(sq.record, bytes(8))
    sq.cq.read += 1 << LOG_CQ
    node.host.poke(sq.cq.record, (sq.cq.read & 0xFFFFFF).to_bytes(4, "big"))


def events(guest: Connectx5Guest, count: int) -> int:
    """Requests for events, and sends that fire them: nobody consumes most of these."""
    chance, node = guest.chance, guest.node
    sq = guest.sqs[0]
    assert sq.cq is not None
    _restart(guest, sq)
    sn = numbers()
    page = node.uar * UAR_BYTES
    done = 0
    while done < count:
        accesses: list[Access] = []
        for _ in range(1 << LOG_SQ):
            node.wqe(sq, b"", SendOpcode.NOP)
            sq.cq.read += 1
            request = (next(sn) & 3) << 28 | sq.cq.read & 0xFFFFFF
            accesses.append((0, page + CQ_DOORBELL, pack(">II", request, sq.cq.number), True))
            send_bell = pack(">II", 0, sq.number << 8)
            accesses.append((0, page + SEND_DOORBELL, send_bell, True))
        node.host.poke(sq.cq.record, (sq.cq.read & 0xFFFFFF).to_bytes(4, "big"))
        if not chance.getrandbits(6):
            consumer = chance.getrandbits(24) & -(1 << LOG_EQ)
            accesses.append((0, page + EQ_ARM, pack(">I", node.eq << 24 | consumer), True))
        send(guest.bus.client, accesses)
        guest.bus.settle()
        done += len(accesses)
    return done


def flows(guest: Connectx5Guest, count: int) -> int:
    """Tables, groups and entries that lead to each other, to TIRs, and to what there is not."""
    chance, node = guest.chance, guest.node
    done = 0
    while len(guest.tables) < MOST_TABLES and done < count // 8:
        with suppress(Refused):
            _make_table(guest)
        done += 2
    while done < count and guest.tables:
        table, group, masked = chance.choice(guest.tables)
        deeper = chance.choice(guest.tables)[0]
        ways = [
            (Destination.FLOW_TABLE, deeper)
            if not chance.getrandbits(2)
            else (Destination.TIR, chance.choice(guest.tirs))
            for _ in range(chance.choice((1, 1, 2, 8)))
        ]
        index = chance.randrange(4) if chance.getrandbits(2) else chance.getrandbits(20)
        address = chance.choice((node.mac, chance.randbytes(6))) if masked else bytes(6)
        entry = node.entry(table, group, index, ways, (), Action.FORWARD, 0, dmac=address)
        with suppress(Refused):
            node.command(Opcode.SET_FLOW_TABLE_ENTRY, entry)
        if not chance.getrandbits(3):
            with suppress(Refused):
                node.set_root(chance.choice(guest.tables)[0])
        done += 1
    return done


def _make_table(guest: Connectx5Guest) -> None:
    """Make a table whose group compares addresses or nothing; may raise `Refused`."""
    chance, node = guest.chance, guest.node
    table = node.make_table(log_size=chance.choice((2, 10, 20)), level=chance.randrange(64))
    masked = bool(chance.getrandbits(1))
    mask = {"dmac": b"\xff" * 6} if masked else {}
    last = 3 if chance.getrandbits(2) else chance.getrandbits(20)
    guest.tables.append((table, node.make_group(table, 0, last, **mask), masked))


def keys(guest: Connectx5Guest, count: int) -> int:
    """Keys of any context, those of the longest list among them; some are destroyed again."""
    chance, node = guest.chance, guest.node
    for number in range(count):
        if not number:
            guest.keys.append(guest.long_list())
        context = bytearray(MKC.pack(pd=node.pd, local_read=1, local_write=1, length64=1))
        for _ in range(chance.randrange(4)):
            context[chance.randrange(len(context))] = chance.getrandbits(8)
        data = (bytes(CONTEXT_AT) + bytes(context)).ljust(LIST, b"\0")
        with suppress(Refused):
            guest.keys.append(node.make(Opcode.CREATE_MKEY, data))
        if len(guest.keys) > 64:
            with suppress(Refused):
                node.command(Opcode.DESTROY_MKEY, number=guest.keys.pop(0))
    return count


def frames(guest: Connectx5Guest, count: int) -> int:
    """Frames of random bytes to the bystander, to all and to itself, and large sends of them."""
    chance, node = guest.chance, guest.node
    sq = guest.sqs[1]
    _restart(guest, sq)
    for number in range(count):
        target = chance.choice((BYSTANDER_MAC, b"\xff" * 6, node.mac))
        kind = chance.choice((b"\x08\0", b"\x86\xdd", b"\x81\0", b"\x89\x15", b"\x88\x08"))
        frame = target + node.mac + kind + chance.randbytes(40)
        large = not chance.getrandbits(2)
        length = chance.randint(1, 65000 if large else 1500)
        segment = ethernet(frame, mss=chance.randint(1, 1500) if large else 0)
        data = pack(">IIQ", length, node.key, guest.buffer)
        node.wqe(sq, segment + data, SendOpcode.LSO if large else SendOpcode.SEND)
        if number % 4 == 3:
            node.ring(sq)
            _restart(guest, sq)
    return count


def objects(guest: Connectx5Guest, count: int) -> int:
    """Commands that make, change and ask about objects, with a few bytes of any value."""
    chance, node = guest.chance, guest.node
    makers: tuple[Callable[[], object], ...] = (
        node.make_cq, lambda: node.make_rqt(guest.rqs), lambda: node.make_tir(guest.rqs[0]),
        lambda: node.make_table(), lambda: node.make(Opcode.ALLOC_PD),
        lambda: node.make(Opcode.ALLOC_UAR),
    )  # fmt: skip
    opcodes = [opcode for opcode in Opcode if opcode.name.startswith(("QUERY", "MODIFY", "CREATE"))]
    for number in range(count):
        with suppress(Refused):
            if not number:
                chance.choice(makers)()
                continue
            data = bytearray(16 + chance.choice((0, 0x100, 0x400)))
            for _ in range(chance.randrange(24)):
                data[chance.randrange(len(data))] = chance.getrandbits(8)
            node.command(chance.choice(opcodes), bytes(data), number=chance.getrandbits(13))
    return count


def commands(guest: Connectx5Guest, count: int) -> int:
    """Entries of commands of any opcode with chains of any form: seldom survived by the driver."""
    chance, node = guest.chance, guest.node
    driver, host = node.driver, node.host
    for number in range(count):
        data = bytearray(chance.randbytes(chance.choice((16, 64, 0x110, 0x800))))
        opcode = chance.choice((*Opcode, chance.getrandbits(12)))
        if opcode in ENDING and chance.getrandbits(4):
            continue
        INPUT.set(data, "opcode", opcode)
        given, _ = driver.write_entry(number % 32, bytes(data), chance.choice((16, 0x400)))
        if given and not chance.getrandbits(2):
            place = (
                chance.choice(given) + BLOCK_BYTES + chance.randrange(MAILBOX.size - BLOCK_BYTES)
            )
            host.poke(place, chance.randbytes(4))
        if not chance.getrandbits(3):
            at = driver.entry_address(number % 32) + chance.randrange(ENTRY.size)
            host.poke(at, chance.randbytes(1))
        driver.ring(chance.getrandbits(32) if not chance.getrandbits(4) else 1 << number % 32)
        driver.used = 0
    guest.bus.settle()
    return count


def segment(guest: Connectx5Guest, count: int) -> int:
    """Stores all over the initialization segment: another queue of commands, resets."""
    chance = guest.chance

    def store() -> list[Access]:
        offset = 4 * chance.randrange(init_segment.SEGMENT_SIZE // 4)
        known = (init_segment.QUEUE_HIGH, init_segment.QUEUE_LOW, init_segment.DOORBELL)
        if chance.getrandbits(1):
            offset = chance.choice(known)
        value = chance.choice((0, RAM_BASE >> 32, chance.getrandbits(32))).to_bytes(4, "big")
        return [(0, offset, value, True), (0, offset, 4, False)]

    return _batches(guest, count, store)


SLICES: Final[dict[Attack, int]] = {
    registers: 8192,
    doorbells: 8192,
    entries: 256,
    events: 2048,
    flows: 96,
    keys: 8,
    frames: 256,
    objects: 96,
    rdma.messages: 256,
    rdma.registrations: 128,
    rdma.page_faults: 64,
    rdma.contexts: 128,
    rdma.programs: 128,
}
"""Accesses of one turn of each attack that leaves a driver alive, roughly."""
LAST: Final[dict[Attack, int]] = {commands: 512, segment: 4096}
"""Those that a guest's life ends with."""
