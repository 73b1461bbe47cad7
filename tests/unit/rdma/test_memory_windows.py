"""Memory windows: who may bind what, what a peer can reach through them, how they end."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import MPT
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.wqe import BindFlag
from bluebridge.device.rdma.memory.region import Rights
from tests.models.hca_driver import ALL_RIGHTS, hardware_key
from tests.models.rdma_node import PD, Node, Pair, SendOpcode, inline, remote

BINDABLE = ALL_RIGHTS | int(Rights.BIND_WINDOW)
EVERYTHING = BindFlag.REMOTE_READ | BindFlag.REMOTE_WRITE | BindFlag.REMOTE_ATOMIC
FIRST, SECOND = 1, 2


def create_window(node: Node, kind: int, pd: int = PD) -> int:
    """SW2HW_MPT as `mlx4_mw_enable` says it; the key."""
    node.keys += 1
    key = node.keys << 8
    values = {"status": 3, "bound_to_qp": 1, "en_inv": 3} if kind == SECOND else {}
    entry = MPT.pack(values, key=hardware_key(key), pd=pd)
    node.command(Opcode.SW2HW_MPT, bytes(entry), node.keys)
    return key


class Windows:
    """Two connected guests; B has memory that may be shown through windows."""

    def __init__(self) -> None:
        self.pair = Pair().connect()
        self.a, self.b = self.pair.a, self.pair.b
        self.address, self.lkey = self.b.memory(8192, rights=BINDABLE)

    def bind(
        self,
        rkey: int,
        kind: int,
        offset: int = 0,
        length: int = 4096,
        access: int = EVERYTHING,
        lkey: int | None = None,
        zero_based: bool = False,
    ) -> int:
        """Bind on B's queue pair; the status."""
        flags = BindFlag.TYPE_2 * (kind == SECOND) | BindFlag.ZERO_BASED * zero_based
        used = self.lkey if lkey is None else lkey
        segment = pack(">IIIIQQ", access, flags, rkey, used, self.address + offset, length)
        self.b.post_send(self.pair.qb, SendOpcode.BIND_MW, segment)
        (wc,) = self.b.completions(self.pair.qb)
        return wc.status

    def write(self, address: int, rkey: int, data: bytes) -> int:
        """RDMA WRITE of A; the status."""
        self.a.post_send(self.pair.qa, SendOpcode.RDMA_WRITE, remote(address, rkey) + inline(data))
        self.pair.run(0.01)
        return self.a.completions(self.pair.qa)[0].status


@pytest.mark.parametrize("kind", [FIRST, SECOND])
def test_a_window_shows_what_it_is_bound_to(kind: int) -> None:
    windows = Windows()
    rkey = create_window(windows.b, kind) | 7
    assert windows.bind(rkey, kind, 1000, 64) == 0
    assert windows.write(windows.address + 1000, rkey, b"through") == 0
    assert windows.b.host.peek(windows.address + 1000, 7) == b"through"
    assert windows.write(windows.address + 1000 + 60, rkey, b"beyond") == (
        CompletionStatus.REMOTE_ACCESS_ERR
    )
    assert windows.b.host.peek(windows.address + 1060, 6) == bytes(6)


def test_a_zero_based_window_begins_at_zero() -> None:
    windows = Windows()
    rkey = create_window(windows.b, SECOND) | 1
    assert windows.bind(rkey, SECOND, 4090, 100, zero_based=True) == 0
    assert windows.write(3, rkey, b"over a page border") == 0
    assert windows.b.host.peek(windows.address + 4093, 18) == b"over a page border"


@pytest.mark.parametrize(
    ("changes", "rights", "pd"),
    [
        ({"length": 8193}, BINDABLE, PD),
        ({"offset": -1}, BINDABLE, PD),
        ({"lkey": 0x77700}, BINDABLE, PD),
        ({}, ALL_RIGHTS, PD),
        ({}, BINDABLE & ~int(Rights.LOCAL_WRITE), PD),
        ({}, BINDABLE, PD + 1),
    ],
    ids=["too long", "below", "no region", "not bindable", "not writable", "PD"],
)
@pytest.mark.parametrize("kind", [FIRST, SECOND])
def test_what_may_not_be_bound(kind: int, changes: dict[str, int], rights: int, pd: int) -> None:
    windows = Windows()
    windows.address, windows.lkey = windows.b.memory(8192, rights=rights)
    rkey = create_window(windows.b, kind, pd) | 1
    assert windows.bind(rkey, kind, **changes) == CompletionStatus.MW_BIND_ERR  # type: ignore[arg-type]


def test_rights_of_a_window_are_its_own() -> None:
    windows = Windows()
    rkey = create_window(windows.b, FIRST) | 1
    assert windows.bind(rkey, FIRST, access=int(BindFlag.REMOTE_READ)) == 0
    assert windows.write(windows.address, rkey, b"no") == CompletionStatus.REMOTE_ACCESS_ERR


def test_type_one_is_bound_again_at_will_and_taken_back_by_length_zero() -> None:
    windows = Windows()
    key = create_window(windows.b, FIRST)
    for low in (1, 2):
        assert windows.bind(key | low, FIRST, low * 8, 8) == 0
    assert windows.write(windows.address + 16, key | 2, b"second") == 0
    assert windows.bind(key | 3, FIRST, 0, 0) == 0
    index = windows.b.adapter.regions.index_of(windows.lkey)
    windows.b.command(Opcode.HW2SW_MPT, modifier=index, op_modifier=1)


def test_type_two_must_be_invalidated_before_it_is_bound_again() -> None:
    windows = Windows()
    key, qb = create_window(windows.b, SECOND), windows.pair.qb
    assert windows.bind(key | 1, SECOND) == 0
    windows.b.post_send(qb, SendOpcode.LOCAL_INVAL, pack(">8xI20x", key | 1))
    assert windows.b.completions(qb)[0].status == 0
    assert windows.bind(key | 2, SECOND) == 0
    assert windows.write(windows.address, key | 2, b"again") == 0
    assert windows.bind(key | 3, SECOND) == CompletionStatus.MW_BIND_ERR


def test_a_peer_invalidates_with_its_send() -> None:
    windows = Windows()
    key = create_window(windows.b, SECOND) | 1
    inbox, inbox_key = windows.b.memory(4096)
    assert windows.bind(key, SECOND) == 0
    windows.b.post_recv(windows.pair.qb, [(inbox_key, inbox, 64)])
    windows.a.post_send(windows.pair.qa, SendOpcode.SEND_INVAL, inline(b"done"), immediate=key)
    assert windows.a.completions(windows.pair.qa)[0].status == 0
    (wc,) = windows.b.completions(windows.pair.qb)
    assert (wc.status, wc.opcode, wc.immediate) == (0, 3, key)
    assert windows.write(windows.address, key, b"no") == CompletionStatus.REMOTE_ACCESS_ERR


def test_type_two_is_for_one_queue_pair() -> None:
    windows = Windows()
    key = create_window(windows.b, SECOND) | 1
    assert windows.bind(key, SECOND) == 0
    second_a, second_b = windows.a.create_qp(0x300), windows.b.create_qp(0x301)
    windows.pair.join(second_a, second_b)
    windows.a.post_send(
        second_a, SendOpcode.RDMA_WRITE, remote(windows.address, key) + inline(b"not mine")
    )
    assert windows.a.completions(second_a)[0].status == CompletionStatus.REMOTE_ACCESS_ERR
    assert windows.write(windows.address, key, b"mine") == 0
    windows.b.command(Opcode.TORST_QP, modifier=windows.pair.qb.qpn, op_modifier=2)
    index = windows.b.adapter.regions.index_of(windows.lkey)
    windows.b.command(Opcode.HW2SW_MPT, modifier=index, op_modifier=1)


def test_a_region_with_windows_stays() -> None:
    windows = Windows()
    key = create_window(windows.b, FIRST)
    assert windows.bind(key | 1, FIRST) == 0
    regions = windows.b.adapter.regions
    index = regions.index_of(windows.lkey)
    status, _ = windows.b.try_command(Opcode.HW2SW_MPT, modifier=index, op_modifier=1)
    assert status == Status.REG_BOUND
    assert windows.write(windows.address, key | 1, b"still") == 0
    windows.b.command(Opcode.HW2SW_MPT, modifier=regions.index_of(key), op_modifier=1)
    windows.b.command(Opcode.HW2SW_MPT, modifier=index, op_modifier=1)


def test_a_window_is_no_local_memory() -> None:
    windows = Windows()
    key = create_window(windows.b, FIRST) | 1
    assert windows.bind(key, FIRST) == 0
    segment = pack(">IIQ", 8, key, windows.address)
    windows.b.post_send(windows.pair.qb, SendOpcode.SEND, segment)
    assert windows.b.completions(windows.pair.qb)[0].status == CompletionStatus.LOCAL_PROT_ERR
