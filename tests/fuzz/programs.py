"""HCAs whose driver does what the fuzzer says: commands, work requests, doorbells."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.mlx4 import bar0, uar
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.mlx4.settings.config import Features
from bluebridge.device.pci.bus import DmaError
from tests.fuzz.bytes_left import BytesLeft
from tests.models.hca_driver import UAR_PAGE, Driver
from tests.models.rdma_node import LOG_RQ, LOG_SQ, SQ_SHIFT, Node, Pair, TestQp

MAILBOX = 1024
STEPS = 40
SECONDS = 0.05
"""Of the guest's clock after the last step."""
_OPCODES = list(Opcode)
_BAR_SIZES = {0: bar0.BAR0_SIZE, 2: uar.BAR2_SIZE}


def _command(driver: Driver, left: BytesLeft) -> None:
    """Any command with any mailbox; numbers are small ones or any."""
    opcode = left.choice(_OPCODES)
    modifier = left.number(left.choice((1, 1, 2, 4)))
    op_modifier = left.number(1)
    driver.host.poke(driver.mailbox_in, left.block(MAILBOX))
    value = driver.mailbox_in if left.number(1) & 3 else left.number(8)
    driver.post(opcode, value, modifier & 0xFFFFFFFF, op_modifier & 0xF, driver.mailbox_out)


def _store(driver: Driver, left: BytesLeft) -> None:
    """A store to a register of either BAR."""
    bar, width = left.choice((0, 2)), left.choice((4, 8, 1, 2))
    offset = left.number(4) % (_BAR_SIZES[bar] - width + 1)
    if bar == 2 and offset & 1:
        offset = UAR_PAGE * uar.PAGE_SIZE + (offset & 0xFF8)
    driver.hca.bar_write(bar, offset, left.take(width).ljust(width, b"\0"))
    driver.hca.bar_read(bar, offset, width)


def _memory(driver: Driver, left: BytesLeft) -> None:
    """Other bytes somewhere in the guest's memory: tables, rings, records."""
    at = 0x100000 + left.number(3) % (7 << 20)
    try:
        driver.host.poke(at, left.block(256))
    except DmaError:
        return


def _time(driver: Driver, left: BytesLeft) -> None:
    driver.host.run(left.number(1) / 1000)


def _act(driver: Driver, left: BytesLeft) -> None:
    left.choice((_command, _command, _command, _store, _memory, _time))(driver, left)


def commands(data: bytes) -> None:
    """A started adapter and a row of commands, stores and changes of memory."""
    left = BytesLeft(data)
    driver = Driver(features=Features(ports=left.choice((1, 2)), pro=True, blueflame=True)).start()
    for _ in range(STEPS):
        if not left:
            break
        _act(driver, left)
    driver.host.run(SECONDS)
    driver.hca.reset()
    driver.host.run(SECONDS)


def _work(service: int) -> Callable[[bytes], None]:
    """A connected pair whose first guest posts entries of the fuzzer's bytes."""

    def run(data: bytes) -> None:
        left = BytesLeft(data)
        pair = Pair(service).connect()
        address, key = pair.a.memory(8192)
        there, rkey = pair.b.memory(8192)
        known = (key, rkey, address, there, pair.qa.qpn, pair.qb.qpn)
        pair.b.post_recv(pair.qb, [(rkey, there, 4096)])
        for _ in range(STEPS):
            if not left:
                break
            _step(pair, left, known)
        pair.run(0.02)
        pair.a.hca.reset()
        pair.b.hca.reset()

    return run


def _step(pair: Pair, left: BytesLeft, known: tuple[int, ...]) -> None:
    node, qp = left.choice(((pair.a, pair.qa), (pair.a, pair.qa), (pair.b, pair.qb)))
    kind = left.number(1) % 6
    if kind < 3:
        _entry(node, qp, left, known)
    elif kind == 3:
        raw = _filled(left, known, 1 << qp.rq_shift)
        slot = qp.received & (1 << LOG_RQ) - 1
        node.host.poke(qp.address + qp.rq_offset + (slot << qp.rq_shift), raw)
        qp.received += 1
        node.host.poke(qp.record, (qp.received & 0xFFFF).to_bytes(4, "big"))
    elif kind == 4:
        _act(node, left)
    else:
        pair.run(0.002)


def _entry(node: Node, qp: TestQp, left: BytesLeft, known: tuple[int, ...]) -> None:
    """A send entry, valid in its ownership only, and the doorbell."""
    slot, lap = qp.sent & (1 << LOG_SQ) - 1, qp.sent >> LOG_SQ & 1
    raw = bytearray(_filled(left, known, 1 << SQ_SHIFT))
    raw[0] = raw[0] & 0x7F | lap << 7
    raw[7] = raw[7] % 9 if left.number(1) & 7 else raw[7]
    node.host.poke(qp.address + (slot << SQ_SHIFT), raw)
    qp.sent += 1
    node.doorbell(qp.qpn)


def _filled(left: BytesLeft, known: tuple[int, ...], length: int) -> bytes:
    """The fuzzer's bytes with keys and addresses that exist where it wants them."""
    raw = bytearray(left.block(length))
    for _ in range(left.number(1) & 7):
        value, width = left.choice(known), left.choice((4, 8))
        at = left.number(1) % (length - 7) & ~3
        raw[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")
    return bytes(raw)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "commands": commands,
    "rc": _work(ServiceType.RC),
    "uc": _work(ServiceType.UC),
    "ud": _work(ServiceType.UD),
    "xrc": _work(ServiceType.XRC),
}
