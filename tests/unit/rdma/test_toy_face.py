"""The engines serve a face that they have never seen, and two different ones at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.rdma import work
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus, PairState, Role
from tests.models.house import HOME
from tests.models.rdma_node import Node, SendOpcode, TestQp, data, remote

COMPILED = not str(work.__file__).endswith(".py")
if not COMPILED:
    from bluebridge.device.rdma.memory.region import Part
    from bluebridge.device.rdma.ports.port_tables import Path, Source
    from tests.models.toy_face import QPN, Kind, Toy

interpreted = pytest.mark.skipif(COMPILED, reason="a face is compiled with its engines, or neither")
TEXT = b"the same engines"
HCA_QPN = 0x250


@pytest.mark.skipif(not COMPILED, reason="the tests below run as they are")
def test_the_toy_on_the_sources_of_compiled_engines() -> None:
    """No class of an interpreted module has a compiled base."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = os.environ | {"BLUEBRIDGE_PURE": "1"}
    done = subprocess.run(words, cwd=HOME, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_toy_imports_no_card() -> None:
    assert "mlx" not in (HOME / "tests/models/toy_face.py").read_text(encoding="utf-8")


def toys() -> tuple[Toy, Toy]:
    """Two toys that are connected."""
    fabric = LocalFabric()
    a, b = Toy(fabric, 1), Toy(fabric, 2)
    a.connect(b.mac, b.gid, QPN)
    b.connect(a.mac, a.gid, QPN)
    return a, b


def with_hca() -> tuple[Toy, Node, TestQp]:
    """A toy that is connected with a ConnectX-3."""
    fabric = LocalFabric()
    toy, hca = Toy(fabric, 1), Node("b", 2, fabric)
    qp = hca.create_qp(HCA_QPN)
    toy.connect(hca.mac, hca.gid, HCA_QPN)
    hca.to_rtr(qp, hca, QPN, pri_rgid=toy.gid, pri_dmac=toy.mac)
    hca.to_rts(qp)
    return toy, hca, qp


@interpreted
def test_send_write_and_read_between_two_toys() -> None:
    a, b = toys()
    own, peers = a.memory(4096, 1), b.memory(4096, 2)
    a.host.poke(own[0], TEXT)
    b.post(Kind.RECEIVE, peers, 64)
    a.post(Kind.SEND, own, len(TEXT))
    assert b.host.peek(peers[0], len(TEXT)) == TEXT
    assert b.completions() == [(0, 0, len(TEXT))]
    a.post(Kind.WRITE, own, len(TEXT), (peers[0] + 100, peers[1]))
    assert b.host.peek(peers[0] + 100, len(TEXT)) == TEXT
    a.post(Kind.READ, (own[0] + 200, own[1]), len(TEXT), (peers[0] + 100, peers[1]))
    assert a.host.peek(own[0] + 200, len(TEXT)) == TEXT
    assert a.completions() == [(number, 0, len(TEXT)) for number in range(3)]


@interpreted
def test_a_toy_asks_a_connectx_3() -> None:
    toy, hca, qp = with_hca()
    own, (address, key) = toy.memory(4096, 1), hca.memory(4096)
    toy.host.poke(own[0], TEXT)
    hca.post_recv(qp, [(key, address, 64)])
    toy.post(Kind.SEND, own, len(TEXT))
    toy.post(Kind.WRITE, own, len(TEXT), (address + 100, key))
    toy.post(Kind.READ, (own[0] + 200, own[1]), len(TEXT), (address + 100, key))
    assert hca.host.peek(address, len(TEXT)) == hca.host.peek(address + 100, len(TEXT)) == TEXT
    assert toy.host.peek(own[0] + 200, len(TEXT)) == TEXT
    assert [(wc.send, wc.status, wc.length) for wc in hca.completions(qp)] == [
        (False, 0, len(TEXT))
    ]
    assert toy.completions() == [(number, 0, len(TEXT)) for number in range(3)]


@interpreted
def test_a_connectx_3_asks_a_toy() -> None:
    toy, hca, qp = with_hca()
    peers, (address, key) = toy.memory(4096, 1), hca.memory(4096)
    hca.host.poke(address, TEXT)
    toy.post(Kind.RECEIVE, peers, 64)
    local = data((key, address, len(TEXT)))
    hca.post_send(qp, SendOpcode.SEND, local)
    hca.post_send(qp, SendOpcode.RDMA_WRITE, remote(peers[0] + 100, peers[1]) + local)
    back = data((key, address + 200, len(TEXT)))
    hca.post_send(qp, SendOpcode.RDMA_READ, remote(peers[0] + 100, peers[1]) + back)
    assert toy.host.peek(peers[0], len(TEXT)) == TEXT
    assert hca.host.peek(address + 200, len(TEXT)) == TEXT
    assert [(wc.send, wc.status) for wc in hca.completions(qp)] == [(True, 0)] * 3
    assert toy.completions() == [(0, 0, len(TEXT))]


@interpreted
def test_a_wrong_key_and_a_wrong_entry_end_a_toy() -> None:
    a, b = toys()
    own, peers = a.memory(4096, 1), b.memory(4096, 2)
    a.post(Kind.WRITE, own, 16, (peers[0], peers[1] + 1))
    assert a.completions() == [(0, CompletionStatus.REMOTE_ACCESS_ERR, 0)]
    assert b.events == [AsyncEvent.WQ_ACCESS_ERROR]
    assert a.qp.state is b.qp.state is PairState.ERR
    c, _ = toys()
    c.post(0x55, (0, 0), 0)
    assert c.completions() == [(0, CompletionStatus.LOCAL_QP_OP_ERR, 0)]


@interpreted
def test_frames_go_where_the_toys_own_steering_says() -> None:
    a, b = toys()
    out, other, ring = a.create(Role.ETHERNET), b.create(Role.ETHERNET), b.create(Role.ETHERNET)
    b.steering.rings = {b"\x88\xb5": ring.number}
    own, room = a.memory(4096, 1), b.memory(4096, 2)
    ring.post(Kind.RECEIVE, room, 2048)
    other.post(Kind.RECEIVE, room, 2048)
    frame = b.mac + a.mac + b"\x88\xb5" + bytes(range(50))
    a.host.poke(own[0], frame)
    out.post(Kind.FRAME, own, len(frame))
    out.post(Kind.FRAME, own, 1519)
    assert b.host.peek(room[0], len(frame)) == frame
    assert ring.completions() == [(0, 0xB5 << 8, len(frame))], "the mark of its type"
    assert other.completions() == []
    assert out.completions() == [(0, 0, len(frame)), (1, CompletionStatus.LOCAL_QP_OP_ERR, 0)]


@interpreted
def test_a_datagram_leaves_from_the_source_that_its_path_names() -> None:
    a, b = toys()
    sender, receiver = a.create(Role.UD), b.create(Role.UD)
    assert (sender.number, receiver.number) == (QPN + 1, QPN + 1), "the adapters' own choice"
    a.sources.entries.append(Source(b"\2\0\0\0\x0a\x77", a.gid, 5, 2))
    a.port.sources_changed()
    path = Path()
    path.source, path.mac, path.gid = 1, b.mac, b.gid
    a.addresses.append(path)
    own, room = a.memory(4096, 1), b.memory(4096, 2)
    a.host.poke(own[0], TEXT)
    receiver.post(Kind.RECEIVE, room, 512)
    sender.post(Kind.DATAGRAM, own, len(TEXT), (0, receiver.number))
    assert b.host.peek(room[0] + 40, len(TEXT)) == TEXT
    assert receiver.completions() == [(0, 0, len(TEXT))]
    route = a.port.known_route(bytes(1), 0)
    assert route is not None
    assert (route.smac[-1], route.vlan, route.roce) == (0x77, 5, 2)


@interpreted
def test_a_peer_writes_through_a_key_of_other_keys_and_changed_pages() -> None:
    a, b = toys()
    own = a.memory(4096, 1)
    (first, one), (second, two) = b.memory(4096, 2), b.memory(4096, 3)
    key = b.indirect(4, Part(one, first + 100, 8), Part(two, second + 200, 8))
    a.host.poke(own[0], TEXT)
    a.post(Kind.WRITE, own, 16, (0, key))
    assert b.host.peek(first + 100, 8) + b.host.peek(second + 200, 8) == TEXT
    paged = b.indirect(5, pages=(first, first))
    b.post(Kind.UPDATE, (second, paged), 1)
    a.post(Kind.WRITE, own, 16, (4096 - 8, paged))
    assert b.host.peek(first + 4096 - 8, 8) + b.host.peek(second, 8) == TEXT
    b.post(Kind.UPDATE, (second, paged), 2)
    assert b.completions() == [(0, 0, 0), (1, CompletionStatus.LOCAL_PROT_ERR, 0)]
    a.post(Kind.WRITE, own, 16, (8, key))
    assert a.completions()[-1] == (2, CompletionStatus.REMOTE_ACCESS_ERR, 0)


@interpreted
def test_a_toy_counts_troubles_by_its_own_names() -> None:
    a, b = toys()
    own = a.memory(4096, 1)
    b.port.close()
    for _ in range(2):
        a.post(Kind.WRITE, own, 16, (0, 0))
    a.host.run(2)
    assert a.completions()[0] == (0, CompletionStatus.TRANSPORT_RETRY_EXC_ERR, 0)
    assert a.troubles() == {"silence": 3, "swept": 1}
    assert b.troubles() == {}
