"""Rows of `bluebridge show` about a ConnectX-5: what stands in them, and that all can be shown."""

from __future__ import annotations

from typing import cast

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.mlx5.queue_pairs import Receives
from bluebridge.device.layout.mlx5.wqe import SendOpcode
from bluebridge.device.mlx5.device import Hca
from bluebridge.device.pci.config_space import Bar
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.show import Row, Tables
from bluebridge.device.show_mlx5 import adapter_tables
from bluebridge.host_tools.show import text
from bluebridge.host_tools.show.show_command import KINDS
from tests.models.mlx5_node import Mlx5Node
from tests.models.mlx5_paged import Paged
from tests.models.mlx5_pair import RoceNode, remote


class Space:
    """A config space without anything."""

    bars = (Bar(0, 1 << 25),)

    def config_snapshot(self) -> bytes:
        return bytes.fromhex("b3151710").ljust(4096, b"\0")


class Card:
    """A card with nothing but its adapter."""

    def __init__(self, node: Mlx5Node) -> None:
        self.adapter = node.adapter
        self.segment, self.failed = node.hca.segment, node.hca.failed


@pytest.fixture
def node() -> Mlx5Node:
    node = Mlx5Node(1)
    node.open()
    return node


def tables(node: Mlx5Node) -> Tables:
    return adapter_tables(cast(Hca, Card(node)), cast(Endpoint, Space()))


def rows(node: Mlx5Node, kind: str) -> list[Row]:
    table = tables(node)[kind]
    return [row for number in table.numbers() if (row := table.row(number)) is not None]


def test_objects_are_counted_as_they_come_and_go(node: Mlx5Node) -> None:
    (before,) = rows(node, "objects")
    rq = node.make_rq()
    node.steer(node.make_tir(rqt=node.make_rqt([rq])))
    (after,) = rows(node, "objects")
    more = {kind: count - before[kind] for kind, count in after.items() if count != before[kind]}
    assert more == {"cq": 1, "rq": 1, "rqt": 1, "tir": 1, "ft": 1, "pages": 2}
    node.adapter.clear()
    (gone,) = rows(node, "objects")
    assert set(gone.values()) == {0}


def test_rows_say_where_frames_go(node: Mlx5Node) -> None:
    rq = node.make_rq()
    rqt = node.make_rqt([rq])
    tir = node.make_tir(rqt=rqt)
    table = node.steer(tir)
    (flows,) = rows(node, "ft")
    assert (flows["table"], flows["root"], flows["entries"]) == (table, True, 2)
    assert flows["to"]["0"] == [f"tir {tir:#x}"]
    assert [row["rqns"] for row in rows(node, "tir")] == [[f"{rq.number:#x}"]]
    assert [row["rqns"] for row in rows(node, "rqt")] == [[f"{rq.number:#x}"]]


def test_queues_tell_how_far_they_are(node: Mlx5Node) -> None:
    sq, rq = node.make_sq(), node.make_rq()
    node.wqe(sq, b"", 0)
    node.ring(sq)
    node.post_receive(rq)
    (sends,), (receives,) = rows(node, "sq"), rows(node, "rq")
    assert (sends["number"], sends["posted"], sends["done"]) == (sq.number, 1, 1)
    assert (receives["state"], receives["done"]) == ("RDY", 0)
    assert {row["cqn"]: row["producer"] for row in rows(node, "cq")} == {
        sends["cqn"]: 1, receives["cqn"]: 0
    }  # fmt: skip


def test_queue_pairs_tell_their_peer_and_how_far_they_are() -> None:
    fabric = LocalFabric()
    a, b = RoceNode(1, fabric), RoceNode(2, fabric)
    pool, idle = b.make_pool(), a.make_pair()
    sender, receiver = a.make_pair(), b.make_pair(rq_type=Receives.SHARED, srqn=pool.number)
    sender.connect(receiver)
    receiver.connect(sender)
    pool.post()
    for _ in range(2):
        sender.post(SendOpcode.SEND, sender.data(b"x"))
    waiting, row = rows(a, "qp")
    (item,) = KINDS["qp"].items({"function": "a", **row})
    assert (waiting["lqpn"], waiting["state"]) == (idle.number, "RST")
    assert (item["lqpn"], item["rqpn"]) == (sender.number, receiver.number)
    assert (item["type"], item["state"], item["path-mtu"]) == ("RC", "RTS", 1024)
    assert (item["sq-next"], item["sq-posted"], item["unacked"]) == (2, 2, 1)
    assert item["gid"] == "::ffff:10.9.0.2"
    (shared,) = rows(b, "srq")
    assert (shared["srqn"], shared["posted"], shared["taken"]) == (pool.number, 1, 1)
    for node in (a, b):
        for kind in ("qp", "srq"):
            for row in rows(node, kind):
                for item in KINDS[kind].items({"function": "a", **row}):
                    assert list(text.page(KINDS[kind], item))


def test_keys_say_what_memory_they_give_access_to(node: Mlx5Node) -> None:
    pages = node.memory(8192)
    number = node.make_key((pages, pages + 4096))
    made = [KINDS["mr"].items({"function": "a", **row})[0] for row in rows(node, "mr")]
    everything, listed = made
    assert (everything["lkey"], everything["type"], everything["mrlen"]) == (
        node.key, "MR physical", "all memory",
    )  # fmt: skip
    assert (listed["lkey"], listed["mrlen"], listed["page-size"]) == (number, 8192, 4096)
    assert listed["access"] == ["LOCAL_READ", "LOCAL_WRITE"]
    table = tables(node)["mr"]
    assert table.find is not None
    assert table.find(number) == number >> 8


def test_registers_are_those_of_the_initialization_segment(node: Mlx5Node) -> None:
    (row,) = rows(node, "regs")
    found = {item["register"]: item for item in KINDS["regs"].items({"function": "a", **row})}
    assert found["INIT.fw_rev"]["fields"] == "minor=0x23 major=0x10"
    assert found["HEALTH.syndrome"]["value"] == "0x00000000"
    node.hca.fail("test")
    (row,) = rows(node, "regs")
    found = {item["register"]: item for item in KINDS["regs"].items({"function": "a", **row})}
    assert found["HEALTH.syndrome"]["value"] == "0x00010000"


def test_every_kind_makes_a_page(node: Mlx5Node) -> None:
    node.make_sq()
    node.steer(node.make_tir(rqt=node.make_rqt([node.make_rq()])))
    for kind in tables(node):
        for row in rows(node, kind):
            for item in KINDS[kind].items({"function": "a", **row}):
                assert list(text.page(KINDS[kind], item))


def test_a_queue_pair_tells_which_pages_it_waits_for() -> None:
    paged = Paged(packets=False)
    there = paged.there
    paged.a.post(
        SendOpcode.RDMA_WRITE, remote(there.start, there.key) + paged.segment(paged.here, 8)
    )
    (own,) = paged.here.faults()
    row = tables(paged.nodes[0])["qp"].row(paged.a.number)
    assert row is not None and row["page-faults"] == [f"SEND WQE ({own.token:#x})"]
    paged.here.lend(0)
    paged.here.resume(own)
    (fault,) = there.faults()
    for node, pair, waits in (
        (paged.nodes[0], paged.a, []),
        (paged.nodes[1], paged.b, [f"write by key {there.key:#x} ({fault.token:#x})"]),
    ):
        row = tables(node)["qp"].row(pair.number)
        assert row is not None and row["page-faults"] == waits
