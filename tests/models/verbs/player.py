"""The two ends of a connection for traffic tests, in the manner of rdma-core's test-suite."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bluebridge.guest.verbs import (
    AccessFlags,
    Device,
    QpAttr,
    QpInit,
    QpState,
    QpType,
    RecvWr,
    SendFlags,
    SendWr,
    Sge,
    Wc,
    WcStatus,
    WrOpcode,
)

ALL = (
    AccessFlags.LOCAL_WRITE
    | AccessFlags.REMOTE_WRITE
    | AccessFlags.REMOTE_READ
    | AccessFlags.REMOTE_ATOMIC
)
SIZE = 64 << 10
PSN = 0xFFFFFE  # wraps at once
TIMEOUT = 5.0
PATTERN = bytes(range(256)) * (SIZE // 256)


class Player:
    """One end: a queue pair with memory of `SIZE` bytes, registered as `mr`, on any provider.

    The memory starts out as zeros. `cq` is armed and told of through `channel`.
    """

    def __init__(
        self,
        device: Device,
        kind: QpType = QpType.RC,
        *,
        access: AccessFlags | int = ALL,
        mr_access: AccessFlags | int = ALL,
        entries: int = 16,
        sges: int = 4,
        inline: int = 0,
        srq: bool = False,
        signal_all: bool = False,
    ) -> None:
        self.device = device
        self.access = access
        self.pd = device.alloc_pd()
        self.channel = device.create_comp_channel()
        self.cq = device.create_cq(256, self.channel)
        self.srq = self.pd.create_srq(entries, sges) if srq else None
        init = QpInit(kind, self.cq, self.cq, entries, entries, sges, sges, inline, self.srq)
        init.signal_all = signal_all
        self.qp = self.pd.create_qp(init)
        self.memory = device.allocate(SIZE)
        self.view = self.memory.view
        self.address = self.memory.address
        self.mr = self.pd.reg_mr(self.address, SIZE, access=mr_access)

    def connect(self, peer: Player, **rts: int) -> None:
        """RESET to RTS towards `peer`; `rts` are timeout, retry_count, rnr_retry …"""
        rnr_timer = rts.pop("min_rnr_timer", 1)
        self.qp.modify_init(self.access)
        there = self.device.address_vector(peer.device.address)
        self.qp.modify_rtr(there, peer.qp.qpn, PSN, min_rnr_timer=rnr_timer)
        self.qp.modify_rts(PSN, **rts)

    def sge(self, offset: int = 0, length: int = SIZE, lkey: int | None = None) -> Sge:
        return Sge(self.address + offset, length, self.mr.lkey if lkey is None else lkey)

    def receive(self, wr_id: int = 0, offset: int = 0, length: int = SIZE) -> None:
        request = RecvWr(wr_id, (self.sge(offset, length),))
        (self.srq or self.qp).post_recv(request)

    def send(
        self,
        opcode: WrOpcode,
        pieces: Sequence[Sge] = (),
        peer: Player | None = None,
        offset: int = 0,
        flags: SendFlags = SendFlags.SIGNALED,
        **more: int,
    ) -> None:
        """Post one work request; with `peer` its memory from `offset` on is the target."""
        request = SendWr(77, opcode, pieces, flags)
        if peer is not None:
            request.remote_addr, request.rkey = peer.address + offset, peer.mr.rkey
        for name, value in more.items():
            setattr(request, name, value)
        self.qp.post_send(request)

    def wait(self, count: int = 1, timeout: float = TIMEOUT) -> list[Wc]:
        """The next `count` completions; AssertionError when they do not come."""
        done: list[Wc] = []
        deadline = time.monotonic() + timeout
        while len(done) < count:
            done += self.cq.poll(count - len(done))
            if len(done) < count:
                if time.monotonic() > deadline:
                    raise AssertionError(f"{count} completions expected, only {done} came")
                time.sleep(0.0001)
        return done

    def expect(self, *statuses: WcStatus) -> list[Wc]:
        """The next completions, which must have these statuses."""
        done = self.wait(len(statuses))
        assert [wc.status for wc in done] == list(statuses)
        return done

    def silent(self, seconds: float = 0.02) -> None:
        """No completion may be there, nor come in `seconds`."""
        settle(self)
        time.sleep(seconds)
        assert self.cq.poll() == []

    def wait_state(self, state: QpState) -> None:
        """Until the device has the queue pair in `state`."""
        deadline = time.monotonic() + TIMEOUT
        while (found := self.qp.query_state()) is not state:
            assert time.monotonic() < deadline, f"{found.name}, {state.name} expected"
            time.sleep(0.0005)

    def reconnect(self, peer: Player) -> None:
        """Back to RESET and to RTS again."""
        self.qp.modify(QpAttr(QpState.RESET))
        self.connect(peer)


def fill(a: Player, b: Player) -> None:
    """Different bytes into both memories, none of which is where the other has it."""
    a.view[:], b.view[:] = PATTERN, PATTERN[::-1]


def untouched(a: Player, b: Player) -> None:
    """Neither memory has changed since `fill`."""
    assert bytes(a.view) == PATTERN
    assert bytes(b.view) == PATTERN[::-1]


def settle(player: Player) -> None:
    """Until the device has seen everything this side sent."""
    player.qp.query_state()
