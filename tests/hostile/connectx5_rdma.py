"""Attacks on the RDMA parts of a ConnectX-5: queue pairs, keys, page faults, programs' commands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from struct import pack
from typing import Final

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import MKC, AccessMode
from bluebridge.device.layout.mlx5.queue_pairs import TRANSITIONS, QpState, Receives, Service
from bluebridge.device.layout.mlx5.user_contexts import UserRight
from bluebridge.device.layout.mlx5.wqe import (
    INLINE,
    INVALID_LKEY,
    KLM,
    OWN_QKEY,
    REPEAT,
    REPEAT_BLOCK,
    STRIDED,
    SendOpcode,
    UmrFlag,
)
from bluebridge.device.layout.net.roce import GSI_QKEY
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.guest.drivers.common.gid_table import link_local_gid
from tests.hostile.attacks import BYSTANDER_MAC
from tests.hostile.connectx5_guest import Connectx5Guest, WireNode
from tests.models.mlx5_keys import ENABLE, PAGE, START, change, empty_key, updater_of
from tests.models.mlx5_node import LOG_CQ, LOG_SQ
from tests.models.mlx5_pager import PageFault, Pager
from tests.models.mlx5_pair import LOG_RQ, V1_INDEX, Pair, Shared, remote, vector
from tests.models.mlx5_user import make_context, make_memory

QKEY: Final = 0x11111111
REMOTE: Final[dict[str, int]] = {"remote_read": 1, "remote_write": 1, "atomic": 1}
LONG_PAGES: Final = 1 << 15
"""The pages of the key of which segments of 128 MiB are made."""
BUFFER: Final = 1 << 16
MOST_CONTEXTS: Final = 16
INLINE_SIZES: Final = (0, 8, 28, 0x3FF)
ENDS: Final = (
    Opcode.DESTROY_QP, Opcode.DESTROY_CQ, Opcode.DESTROY_MKEY, Opcode.DESTROY_RMP,
    Opcode.DESTROY_XRC_SRQ, Opcode.DESTROY_UMEM, Opcode.DEALLOC_PD, Opcode.DEALLOC_XRCD,
    Opcode.DESTROY_SQ, Opcode.DESTROY_RQ,
)  # fmt: skip
SIZES: Final = (1, 8, PAGE, 3 * PAGE + 77, 1 << 20, 1 << 31)
ANY_FIELDS: Final = (1 << 64) - 1
ATOMICS: Final = (
    SendOpcode.ATOMIC_CS, SendOpcode.ATOMIC_FA, SendOpcode.ATOMIC_MASKED_CS,
    SendOpcode.ATOMIC_MASKED_FA,
)  # fmt: skip
SENDS: Final = (SendOpcode.SEND, SendOpcode.SEND_IMM, SendOpcode.SEND_INVAL)
MESSAGES: Final = (*SENDS, SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_IMM)
OF_SERVICE: Final = {
    Service.UD: SENDS[:2],
    Service.UC: MESSAGES,
    Service.XRC: (*MESSAGES, SendOpcode.RDMA_READ, *ATOMICS),
    Service.RC: (*MESSAGES, SendOpcode.RDMA_READ, *ATOMICS),
}
Makers = tuple[Callable[[], object], ...]


class Rdma:
    """The objects of a hostile guest for RDMA: connected queue pairs, keys of all kinds, a pager.

    `sides` are pairs of connected queue pairs, `apart` those of datagrams, `keys` and `parts` those
    that work requests change; `rkeys` may be named by requests.
    """

    def __init__(self, guest: Connectx5Guest) -> None:
        self.guest, self.node, self._chance = guest, guest.node, guest.chance
        node, make = guest.node, guest.node.make_pair
        self.buffer, self.place = node.memory(BUFFER), node.memory(BUFFER)
        pages = [self.buffer + PAGE * number for number in range(BUFFER // PAGE)]
        self.long = node.make_key(pages[::-1] * (LONG_PAGES * PAGE // BUFFER), **REMOTE)
        self.whole = node.make_key((), **REMOTE)
        xrcd = node.make(Opcode.ALLOC_XRCD)
        self.xrc_srq, self.pool = node.make_xrc_srq(xrcd, node.make_cq()), node.make_pool()
        pooled = {"rq_type": Receives.SHARED, "srqn": self.pool.number}
        xrc = {"rq_type": Receives.SHARED, "srqn": self.xrc_srq.number, "xrcd": xrcd}
        self.sides = [
            (make(Service.RC, fast_register=1, reserved_lkey=1), make(Service.RC)),
            (make(Service.RC), make(Service.RC, **pooled)),
            (make(Service.UC), make(Service.UC)),
            (make(Service.XRC, rq_type=Receives.NONE), make(Service.XRC, **xrc)),
        ]
        self.apart = (make(Service.UD), make(Service.UD, **pooled))
        services = (Service.RC, Service.RC, Service.UC, Service.XRC)
        self.ways = [*zip(services, self.sides, strict=True), (Service.UD, self.apart)]
        self.updater, self.pager = updater_of(node), Pager(node)
        self.keys = [empty_key(node, 64) for _ in range(8)]
        self.parts = [
            node.make_key((), access_mode=AccessMode.KLMS, length64=0, umr=1, free=1,
                          translations=64, **REMOTE)
            for _ in range(8)
        ]  # fmt: skip
        self.rkeys = [self.long, self.whole, *self.keys, *self.parts, self.pager.key]
        self.contexts: list[int] = []
        self.numbers = [pair.number for side in self.sides for pair in side]

    # -- states -----------------------------------------------------------------------------------

    def ready(self, pairs: tuple[Pair, ...]) -> None:
        """Take queue pairs that failed back into service, and empty their completion queues."""
        again = not self._chance.getrandbits(2)
        again |= any(pair.state is not QpState.RTS for pair in pairs)
        for pair in pairs:
            if again:
                self._restart(pair, pairs[-1] if pair is pairs[0] else pairs[0])
            for cq in (pair.scq, pair.rcq):
                cq.read += 1 << LOG_CQ
                self.node.host.poke(cq.record, (cq.read & 0xFFFFFF).to_bytes(4, "big"))

    def _restart(self, pair: Pair, peer: Pair) -> None:
        with suppress(Refused):
            self.node.command(Opcode.TORST_QP, number=pair.number)
        pair.sq.posted = pair.rq.posted = 0
        self.node.host.poke(pair.record, bytes(8))
        with suppress(AssertionError):
            if pair in self.apart:
                pair.start(QKEY)
            elif pair is self.updater:
                pair.start(0, pd=self.node.pd)
            else:
                pair.connect(peer, min_rnr_timer=self._chance.choice((0, 12)))

    # -- entries ----------------------------------------------------------------------------------

    def data(self) -> bytes:
        """A data segment: short, of up to 128 MiB, inline, seldom of no sense."""
        chance = self._chance
        kind = chance.randrange(32)
        if kind == 0:
            return chance.randbytes(16)
        if kind == 1:
            key, length = chance.choice(self.rkeys), chance.choice(SIZES)
            return pack(">IIQ", length, key, START + chance.randrange(BUFFER))
        if kind < 8:
            length = 8 if kind > 3 else chance.choice(INLINE_SIZES)
            return pack(">I12x", INLINE | length)
        address = self.buffer + 8 * chance.randrange(PAGE)
        key, address, length = chance.choice(
            (
                (self.long, chance.randrange(PAGE), LONG_PAGES * PAGE - PAGE),
                (self.whole, address, chance.randrange(BUFFER // 2)),
                (self.whole, address, 8),
            )
        )
        return pack(">IIQ", length, key, address)

    def target(self) -> bytes:
        """The segment with a remote address."""
        chance = self._chance
        if not chance.getrandbits(5):
            return chance.randbytes(16)
        if not chance.getrandbits(3):
            return remote(START + chance.randrange(BUFFER), chance.choice(self.rkeys))
        key = chance.choice((self.long, self.whole))
        return remote(self.buffer * (key == self.whole) + 8 * chance.randrange(PAGE), key)

    def segments(self, pair: Pair, opcode: int) -> bytes:
        """The segments behind the first one, mostly those that the opcode wants."""
        chance = self._chance
        raw = b""
        if pair in self.apart:
            raw += self._datagram()
        elif pair is self.sides[3][0]:
            number = self.xrc_srq.number if chance.getrandbits(4) else chance.getrandbits(24)
            raw += pack(">I12x", number)
        if opcode not in SENDS:
            raw += self.target()
        if opcode in ATOMICS:
            raw += chance.randbytes(16 if opcode in ATOMICS[:2] else 32)
            return raw + pack(">IIQ", 8, self.whole, self.buffer)
        return raw + b"".join(self.data() for _ in range(chance.choice((0, 1, 1, 1, 2, 4))))

    def _datagram(self) -> bytes:
        chance, node = self._chance, self.node
        qpn = chance.choice((0, 1, self.apart[1].number, chance.getrandbits(24)))
        qkey = chance.choice((QKEY, GSI_QKEY, OWN_QKEY, chance.getrandbits(32)))
        more: dict[str, Value] = {}
        if chance.getrandbits(1):
            gid = link_local_gid(BYSTANDER_MAC)
            more = {"source": V1_INDEX, "rmac": BYSTANDER_MAC, "rgid": gid}
        if not chance.getrandbits(3):
            more = {"source": chance.getrandbits(8), "rgid": chance.randbytes(16)}
        return vector(node, node, qpn, qkey, **more)

    def receive(self, pair: Pair) -> None:
        """Post a receive to the queue that a pair takes from: long, or of no sense."""
        chance, node = self._chance, self.node
        place = self.buffer + 8 * chance.randrange(PAGE)
        entry = pack(">IIQ", BUFFER // 2, self.whole, place) + pack(">IIQ", 0, INVALID_LKEY, 0)
        if not chance.getrandbits(3):
            entry = b"".join(self.data() for _ in range(4))
        shared = self._shared(pair)
        if shared is None:
            slot = pair.rq.posted % (1 << LOG_RQ)
            node.host.poke(pair.rq.address + 64 * slot, entry)
            pair.rq.posted += 1
            node.host.poke(pair.record, (pair.rq.posted & 0xFFFF).to_bytes(4, "big"))
            return
        slot = shared.posted % shared.count
        following = slot + 1 if chance.getrandbits(3) else chance.getrandbits(16)
        head = pack(">HHQI", 0, following, 0, 0)
        node.host.poke(shared.address + 64 * slot, head + entry[:48])
        shared.posted += 1 if chance.getrandbits(5) else chance.getrandbits(16)
        node.host.poke(shared.record, (shared.posted & 0xFFFF).to_bytes(4, "big"))

    def _shared(self, pair: Pair) -> Shared | None:
        if pair is self.sides[3][1]:
            return self.xrc_srq
        return self.pool if pair in (self.sides[1][1], self.apart[1]) else None


def _of(guest: Connectx5Guest) -> Rdma:
    """The objects of a guest for RDMA, made with the first attack on it."""
    if guest.rdma is None:
        guest.rdma = Rdma(guest)
    assert isinstance(guest.rdma, Rdma)
    return guest.rdma


def _write(rdma: Rdma, pair: Pair, service: Service = Service.RC) -> None:
    """Write an entry that the service has, one in 16 of any opcode, size and bytes."""
    chance = rdma.guest.chance
    opcode: int = chance.choice(OF_SERVICE[service])
    size, flags = None, chance.choice((8, 8, 12, 0))
    wild = not chance.getrandbits(4)
    if wild:
        opcode, flags = chance.getrandbits(8), chance.getrandbits(8)
        size = chance.choice((None, chance.getrandbits(6)))
    raw = rdma.segments(pair, opcode)
    if wild and chance.getrandbits(1):
        raw = chance.randbytes(chance.randrange(112))
    index = pair.sq.posted
    rdma.node.wqe(pair.sq, raw[:112], opcode, flags, size)
    place = pair.sq.address + index % (1 << LOG_SQ) * 64
    rdma.node.host.poke(place + 12, chance.choice(rdma.rkeys).to_bytes(4, "big"))


def messages(guest: Connectx5Guest, count: int) -> int:
    """Work requests and receives of all services, some nearly right, and records of any value."""
    rdma, chance = _of(guest), guest.chance
    done = 0
    while done < count:
        service, sides = chance.choice(rdma.ways)
        rdma.ready(sides)
        for pair in sides:
            for _ in range(chance.randrange(16)):
                rdma.receive(pair)
        for _ in range(8):
            _write(rdma, sides[0], service)
        if not chance.getrandbits(4):
            guest.node.host.poke(chance.choice(sides).record, chance.randbytes(8))
        guest.node.ring(sides[0].sq)
        done += 8
    return done


def registrations(guest: Connectx5Guest, count: int) -> int:
    """Changes of keys by work requests: any fields, lists, parts of each other without an end."""
    rdma, chance = _of(guest), guest.chance
    trusted, (other, user) = rdma.updater, rdma.sides[1]
    registering = rdma.sides[0][0]
    for number in range(count):
        pair = chance.choice((trusted, registering, registering, other))
        if not number % 8:
            rdma.ready((trusted,))
            rdma.ready(rdma.sides[0])
            rdma.ready((other, user))
        _change(rdma, pair)
        if not chance.getrandbits(1):
            _write(rdma, registering)
            guest.node.ring(registering.sq)
    return count


def _change(rdma: Rdma, pair: Pair) -> None:
    chance = rdma.guest.chance
    indirect = chance.getrandbits(1)
    key = chance.choice(rdma.parts if indirect else rdma.keys)
    if not chance.getrandbits(3):
        key = chance.choice((key ^ 1, key + 0x100, chance.getrandbits(32)))
    raw = _parts(rdma) if indirect else _pages(rdma)
    values: dict[str, Value] = {
        "start": START,
        "length": chance.choice((0, PAGE, BUFFER, 64 * PAGE, chance.getrandbits(64))),
        "log_page_size": chance.choice((12, 12, 12, chance.getrandbits(6))), "pd": rdma.node.pd,
        "local_read": 1, "local_write": 1, **REMOTE, "free": not chance.getrandbits(2),
        "may_invalidate": chance.getrandbits(1), "length64": not chance.getrandbits(4),
    }  # fmt: skip
    if not chance.getrandbits(3):
        spoilt = bytearray(MKC.pack(values))
        spoilt[chance.randrange(len(spoilt))] = chance.getrandbits(8)
        values = {field.name: MKC.get(spoilt, field.name) for field in MKC if field.name in values}
    mask = chance.choice((ENABLE, ENABLE, 0, ENABLE & chance.getrandbits(30), ANY_FIELDS))
    must = chance.choice((0, UmrFlag.MUST_BE_FREE, UmrFlag.MUST_NOT_BE_FREE, chance.getrandbits(8)))
    offset = chance.choice((0, 0, 0, 4, chance.getrandbits(16)))
    change(
        pair, key, mask, flags=must, offset=offset, values=values, entries=raw, place=rdma.place
    )  # fmt: skip


def _pages(rdma: Rdma) -> bytes:
    chance = rdma.guest.chance
    count = chance.choice((0, 8, 16, 64, 72, 8192))
    page = (rdma.buffer | chance.choice((3, 3, 3, 1, 0))).to_bytes(8, "big")
    return page * count if chance.getrandbits(3) else chance.randbytes(8 * min(count, 64))


def _parts(rdma: Rdma) -> bytes:
    """Parts of other keys, of keys that consist of parts themselves, the same one among them.

    Some say that they repeat.
    """
    chance = rdma.guest.chance
    head = b""
    if not chance.getrandbits(2):
        head = bytes(
            REPEAT.pack(
                byte_count=chance.choice((PAGE, 4 * PAGE, chance.getrandbits(32))),
                operation=REPEAT_BLOCK,
                repeats=chance.choice((0, 1, 16, 0xFFFF_FFFF, chance.getrandbits(32))),
                entries=chance.choice((0, 1, 1, 4, 64, chance.getrandbits(16))),
            )
        )
        if chance.getrandbits(1):
            key, stride = chance.choice((*rdma.rkeys, *rdma.parts)), chance.getrandbits(16)
            return head + bytes(
                STRIDED.pack(stride=stride, byte_count=PAGE, key=key, address=START)
            )
    return head + b"".join(
        bytes(
            KLM.pack(
                byte_count=chance.choice((PAGE, BUFFER, 0, chance.getrandbits(32))),
                key=chance.choice((*rdma.rkeys, *rdma.parts, chance.getrandbits(32))),
                address=START if chance.getrandbits(2) else chance.getrandbits(64),
            )
        )
        for _ in range(chance.choice((1, 4, 4, 64, 1024)))
    )


def page_faults(guest: Connectx5Guest, count: int) -> int:
    """Work that meets absent pages; answers that are wrong, come twice, or do not come."""
    rdma, chance = _of(guest), guest.chance
    pager, (a, b) = rdma.pager, rdma.sides[0]
    done = 0
    while done < count:
        rdma.ready((a, b))
        rdma.ready((pager.updater,))
        pager.take(chance.randrange(8) * 8, 8)
        for _ in range(8):
            rdma.receive(b)
            length = chance.choice((8, PAGE, 3 * PAGE + 77, 12 * PAGE))
            absent = pager.start + chance.randrange(52 * PAGE)
            places = ((pager.key, absent), (rdma.whole, rdma.buffer))
            local = pack(">IIQ", length, *chance.choice(places))
            opcode = chance.choice((SendOpcode.SEND, SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ))
            there = b"" if opcode is SendOpcode.SEND else remote(absent, pager.key)
            rdma.node.wqe(a.sq, there + local, opcode)
        rdma.node.ring(a.sq)
        done += 8 + _answers(rdma)
    return done


def _answers(rdma: Rdma) -> int:
    """Answer some of the events in any way; how many there were."""
    chance, pager, faults = rdma.guest.chance, rdma.pager, list[PageFault]()
    with suppress(ValueError):  # a message may have been stored over events
        faults = pager.faults()
    for fault in faults:
        if chance.getrandbits(1):
            pager.lend(chance.randrange(8) * 8, 8)
        more = {}
        if not chance.getrandbits(1):
            word, wide = chance.choice((("fault", 3), ("queue", 24), ("token", 24), ("error", 1)))
            more[word] = chance.getrandbits(wide)
        for _ in range(chance.choice((0, 1, 1, 2))):
            with suppress(ValueError):  # a message may have been stored over the event
                pager.resume(fault, **more)
        if not chance.getrandbits(3):
            rdma.node.status(Opcode.TOERR_QP, number=chance.choice(rdma.numbers))
    return len(faults)


def _makers(node: WireNode) -> Makers:
    return (
        node.make_pair, partial(node.make_pair, Service.UD), partial(node.make_pair, Service.XRC),
        node.make_pool, node.make_cq,
        lambda: node.make_xrc_srq(node.make(Opcode.ALLOC_XRCD), node.make_cq()),
        lambda: node.make_key([node.host.allocate(PAGE)] * 64), partial(empty_key, node),
        lambda: make_memory(node, [node.host.allocate(PAGE)] * 64),
    )  # fmt: skip


def contexts(guest: Connectx5Guest, count: int) -> int:
    """Queue pairs, shared queues and keys of nearly right contexts, whose rings overlap."""
    rdma, chance, node = _of(guest), guest.chance, guest.node
    node.dice = chance
    makers = _makers(node)
    try:
        with node.host.overlapping():
            for _ in range(count):
                with suppress(Refused):
                    made = chance.choice(makers)()
                    if isinstance(made, Pair):
                        _use(rdma, made)
                with suppress(Refused):
                    node.command(chance.choice(ENDS), number=chance.choice(node.made))
    finally:
        node.dice = None
    return count


def _use(rdma: Rdma, pair: Pair) -> None:
    """Take a queue pair through its states, in any order, and post to it."""
    chance = rdma.guest.chance
    with suppress(AssertionError):
        pair.connect(chance.choice((pair, rdma.sides[0][1])))
    for _ in range(4):
        pair.change(Opcode(chance.choice([*TRANSITIONS])), chance.getrandbits(27), mtu=3)
    for _ in range(chance.randrange(16)):
        _write(rdma, pair)
    rdma.node.ring(pair.sq)


def programs(guest: Connectx5Guest, count: int) -> int:
    """Commands in user contexts: objects in memory of users, of others, ends in any order."""
    rdma, chance, node = _of(guest), guest.chance, guest.node
    kept = node.pd
    domain = partial(node.make, Opcode.ALLOC_PD)
    makers: Makers = (*_makers(node), node.make_sq, node.make_rq, domain)
    try:
        with node.host.overlapping():
            if len(rdma.contexts) < MOST_CONTEXTS:
                rdma.contexts.append(make_context(node, chance.choice((0, UserRight.RAW_SEND))))
            for _ in range(count):
                node.uid, node.pd = chance.choice(rdma.contexts), kept
                node.dice = None if chance.getrandbits(1) else chance
                with suppress(Refused):
                    node.pd = node.make(Opcode.ALLOC_PD)
                    made = chance.choice(makers)()
                    if isinstance(made, Pair):
                        _use(rdma, made)
                with suppress(Refused):
                    node.command(chance.choice(ENDS), number=chance.choice(node.made))
            node.uid, node.dice = 0, None
            if not chance.getrandbits(2):
                node.status(Opcode.DESTROY_UCTX, number=chance.choice(rdma.contexts))
    finally:
        node.uid, node.pd, node.dice = 0, kept, None
    return count
