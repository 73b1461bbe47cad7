"""Keys of a ConnectX-5 beside those over pages: the one that needs no command, windows, parts."""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.cqe import ERROR_CQE, Syndrome
from bluebridge.device.layout.mlx5.objects import SPECIAL_CONTEXTS
from bluebridge.device.layout.mlx5.wqe import SendOpcode
from tests.models.mlx5_pair import Pair, RoceNode, remote


@pytest.fixture
def nodes() -> tuple[RoceNode, RoceNode]:
    fabric = LocalFabric()
    return RoceNode(1, fabric), RoceNode(2, fabric)


def connect(a: Pair, b: Pair) -> None:
    a.connect(b)
    b.connect(a)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_reserved_key_is_all_of_memory_for_pairs_that_may_use_it(
    nodes: tuple[RoceNode, RoceNode], *, allowed: bool
) -> None:
    first, second = nodes
    answer = first.command(Opcode.QUERY_SPECIAL_CONTEXTS)
    key = SPECIAL_CONTEXTS.get(answer, "reserved_lkey")
    a, b = first.make_pair(reserved_lkey=int(allowed)), second.make_pair()
    connect(a, b)
    buffer = b.receive()
    a.post(SendOpcode.SEND, a.data(b"from anywhere", key))
    (sent,) = a.sent()
    if allowed:
        assert second.host.peek(buffer, 13) == b"from anywhere"
    else:
        assert ERROR_CQE.get(sent, "syndrome") == Syndrome.LOCAL_PROT_ERR


def test_a_peer_reaches_nothing_by_the_reserved_key(nodes: tuple[RoceNode, RoceNode]) -> None:
    first, second = nodes
    key = SPECIAL_CONTEXTS.get(second.command(Opcode.QUERY_SPECIAL_CONTEXTS), "reserved_lkey")
    a, b = first.make_pair(), second.make_pair(reserved_lkey=1)
    connect(a, b)
    place = second.memory(b"untouched")
    a.post(SendOpcode.RDMA_WRITE, remote(place, key) + a.data(b"forbidden"))
    (sent,) = a.sent()
    assert ERROR_CQE.get(sent, "syndrome") == Syndrome.REMOTE_ACCESS_ERR
    assert second.host.peek(place, 9) == b"untouched"
