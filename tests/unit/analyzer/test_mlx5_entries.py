"""The words of the log for entries of a ConnectX-5's queues, as a device and a driver make them."""

from __future__ import annotations

from struct import pack
from typing import cast

from bluebridge.device.buslog.reader import Event
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx5.contexts import AccessMode
from bluebridge.device.layout.mlx5.queue_pairs import Receives, Service
from bluebridge.device.layout.mlx5.wqe import (
    INLINE,
    REPEAT,
    REPEAT_BLOCK,
    STRIDED,
    UMR,
    KeyMask,
    SendOpcode,
)
from bluebridge.host_tools.analyzer.devices.mlx5 import MLX5
from tests.models.mlx5_node import Mlx5Node, ethernet, mac_of
from tests.models.mlx5_pair import RoceNode, remote, vector


def told(node: Mlx5Node, what: What) -> list[str]:
    """The words for all transfers of a kind so far."""
    return [
        MLX5.words[what](cast(Event, event)) for event in node.host.events if event.what is what
    ]


def test_entries_of_a_frame_and_of_one_that_failed() -> None:
    fabric = LocalFabric()
    a, b = Mlx5Node(1, fabric), Mlx5Node(2, fabric)
    sq, rq = a.make_sq(), b.make_rq()
    b.steer(b.make_tir(rq))
    a.open()
    b.open()
    buffer = b.post_receive(rq, size=INLINE | 2048, address=0x200000)
    frame = mac_of(2) + mac_of(1) + b"\x81\0\0\7\x88\xb5" + bytes(70)
    source = a.memory(frame[18:])
    segments = ethernet(frame[:18], checksums=0xC0) + pack(">IIQ", 72, a.key, source)
    a.wqe(sq, segments)
    a.wqe(sq, ethernet() + pack(">IIQ", 60, 0xBAD00, 0))
    a.ring(sq)
    key = a.key
    assert told(a, What.FRAME_WQE) == [
        f"WQE sqn=0x1000 SEND signaled index=0 csum headers=18 sge={source:#x}+72 lkey={key:#x}",
        "WQE sqn=0x1000 SEND signaled index=1 sge=0x0+60 lkey=0xbad00",
    ]
    assert told(a, What.CQE) == [
        "CQE cqn=0x400 sqn=0x1000 send SEND wqe=0",
        "CQE cqn=0x400 send LOCAL_PROT_ERR number=0x1000 wqe=1",
    ]
    assert told(b, What.RQ_WQE) == [f"RQ WQE rqn=0x1000 sge={buffer:#x}+2048 lkey={b.key:#x}"]
    assert told(b, What.CQE) == ["CQE cqn=0x400 receive bytes=86 wqe=0 vlan=0x7"]
    assert told(a, What.DOORBELL_RECORD) == ["doorbell record of 0x1000 = 0x2"]


def test_entries_of_queue_pairs_and_of_shared_receives() -> None:
    fabric = LocalFabric()
    a, b = RoceNode(1, fabric), RoceNode(2, fabric)
    pool = b.make_pool()
    one, two = a.make_pair(), b.make_pair(rq_type=Receives.SHARED, srqn=pool.number)
    one.connect(two)
    two.connect(one)
    buffer = pool.post()
    place = a.memory(8)
    word = pack(">IIQ", 8, a.key, place)
    one.post(SendOpcode.SEND_IMM, word, last=0x77)
    one.post(SendOpcode.ATOMIC_CS, remote(0x2000, 0x5500) + pack(">QQ", 1, 2) + word)
    other = a.make_pair()
    other.connect(two)
    other.post(SendOpcode.ATOMIC_MASKED_FA | 8 << 24, remote(0x2000, 0x5500) + pack(">II8x", 1, 2))
    target = a.make_pair(Service.XRC, rq_type=Receives.NONE)
    target.connect(two)
    target.post(SendOpcode.RDMA_WRITE, pack(">I12x", 0x105) + remote(0x3000, 0x66) + word)
    qpn, key = one.number, a.key
    assert told(a, What.SQ_WQE) == [
        f"WQE qpn={qpn:#x} SEND_IMM signaled immediate=0x77 index=0 sge={place:#x}+8 lkey={key:#x}",
        f"WQE qpn={qpn:#x} ATOMIC_CS signaled index=1 raddr=0x2000 rkey=0x5500 swap_add=0x1 "
        f"compare=0x2 sge={place:#x}+8 lkey={key:#x}",
        f"WQE qpn={other.number:#x} ATOMIC_MASKED_FA signaled index=0 raddr=0x2000 rkey=0x5500 "
        "add=0x1 boundaries=0x2",
        f"WQE qpn={target.number:#x} RDMA_WRITE signaled index=0 srqn=0x105 raddr=0x3000 "
        f"rkey=0x66 sge={place:#x}+8 lkey={key:#x}",
    ]
    assert told(b, What.SRQ_WQE) == [
        f"SRQ WQE srqn={pool.number:#x} next=1 sge={buffer:#x}+256 lkey={b.key:#x}"
    ]
    datagrams = a.make_pair(Service.UD)
    datagrams.start(5)
    datagrams.post(SendOpcode.SEND, vector(a, b, 0x42, 5) + word)
    assert told(a, What.UD_WQE) == [
        f"WQE qpn={datagrams.number:#x} SEND signaled index=0 to=0x42 address=3 "
        "gid=::ffff:10.9.0.2"  # what follows is not in the log
    ]


def test_a_list_whose_blocks_repeat_is_told_by_its_blocks() -> None:
    fabric = LocalFabric()
    a, b = RoceNode(1, fabric), RoceNode(2, fabric)
    one = a.make_pair(log_sq_size=4)
    one.connect(b.make_pair())
    region = a.make_key((a.host.allocate(4096),))
    key = a.make_key((), access_mode=AccessMode.KLMS, length64=0, free=1, umr=1, translations=4)
    head = {"operation": REPEAT_BLOCK, "repeats": 3, "entries": 0xFFFF, "byte_count": 8}
    listed = bytes(REPEAT.pack(head)) + bytes(STRIDED.pack(stride=10, byte_count=8, key=region))
    control = bytes(UMR.pack(octowords=2, mask=int(KeyMask.FREE)))
    one.post(SendOpcode.UMR, control + bytes(64) + one.data(listed), last=key & ~0xFF)
    one.post(SendOpcode.UMR, control + bytes(64) + one.data(bytes(32)), last=key & ~0xFF)
    assert told(a, What.SQ_WQE)[0] == (
        f"WQE qpn={one.number:#x} UMR signaled index=0 mkey={key & ~0xFF:#x} octowords=2"
    )
    assert told(a, What.PAGE_LIST) == [
        f"page list {one.number:#x} repeats=3 part=0x0+8 key={region:#x} stride=10"
    ]
