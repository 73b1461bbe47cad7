"""`python -m tests.fuzz.record FOLDER [PYTEST'S WORDS]`: inputs of steps out of the unit tests.

While a unit test runs, what it does to hosts and functions is written down; each test becomes an
input of `hca` or `ntb` in FOLDER, of which `tests.fuzz.keep` takes those that reach more. Tests of
other shapes (three guests, models of their own) are left out. Without a FOLDER the prologues are
written anew: corpora that start from one that changed have to be recorded again, too.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import ServiceType
from tests.fuzz import guests
from tests.fuzz.recorder import Recorder
from tests.models import gen1_pair, mlx5_node, ntb_pair, switchtec_pair
from tests.models.hca_driver import Driver
from tests.models.ib_node import Subnet
from tests.models.mlx5_driver import Mlx5Driver
from tests.models.mlx5_node import Mlx5Node
from tests.models.mlx5_paged import Paged
from tests.models.mlx5_pair import RoceNode
from tests.models.mlx5_pairs import Net
from tests.models.mlx5_pairs import Pair as FramePair
from tests.models.mlx5_queue_node import QueueNode
from tests.models.mlx5_user import UserNode
from tests.models.rdma_node import Node, Pair


def _roce_nodes() -> object:
    fabric = LocalFabric()
    return [Node(name, number, fabric) for number, name in enumerate("ab", 1)]


def _roce_connected() -> object:
    pair = Pair(ServiceType.RC).connect()
    for node in (pair.a, pair.b):
        node.memory(8192)
    pair.post_recv([(pair.b.memory(8192)[1], 0, 0)])
    return pair


def _started() -> object:
    return Driver().start()


def _ethernet_frames() -> object:
    """Two guests with a queue pair for frames each."""
    pair = Pair()
    for node, qpn in ((pair.a, 0x60), (pair.b, 0x61)):
        qp = node.create_qp(qpn, ServiceType.MLX, mtu_msgmax=0xFF)
        node.modify(qp, Opcode.INIT2RTR_QP, pri_sched_queue=0x83)
        node.modify(qp, Opcode.RTR2RTS_QP)
        address, key = node.memory(8192)
        for _ in range(8):
            node.post_recv(qp, [(key, address, 4096)])
    return pair


def _infiniband_unmanaged() -> object:
    return Subnet(managed=False)


def _mlx5_node() -> object:
    node = QueueNode(1)
    node.open()
    node.events()
    return node


def _mlx5_rings() -> object:
    return FramePair(QueueNode)


def _mlx5_spread() -> object:
    return Net(QueueNode)


def _mlx5_roce() -> object:
    fabric = LocalFabric()
    return RoceNode(1, fabric), RoceNode(2, fabric)


def _mlx5_connected() -> object:
    fabric = LocalFabric()
    nodes = RoceNode(1, fabric), RoceNode(2, fabric)
    a, b = (node.make_pair() for node in nodes)
    a.connect(b)
    b.connect(a)
    return a, b


def _mlx5_registering() -> object:
    """Queue pairs of kernels, as the tests of changes of keys make them."""
    fabric = LocalFabric()
    a, b = (RoceNode(n, fabric).make_pair(fast_register=1) for n in (1, 2))
    a.connect(b)
    b.connect(a)
    return a, b


def _mlx5_paged() -> object:
    return Paged(packets=False)


def _mlx5_user() -> object:
    fabric = LocalFabric()
    nodes = UserNode(1, fabric), UserNode(2, fabric)
    for user in nodes:
        user.enter()
    a, b = (user.make_pair() for user in nodes)
    a.connect(b)
    b.connect(a)
    return a, b


def _mlx5_started() -> object:
    return Mlx5Driver(memory=8 << 20).start()


def _gen4_up() -> object:
    pair = ntb_pair.Pair()
    pair.bring_up()
    return pair


def _switchtec_up() -> object:
    pair = switchtec_pair.Pair()
    pair.know_the_link()
    return pair


BEGINNINGS: dict[str, Callable[[], object]] = {
    "roce_nodes": _roce_nodes,
    "roce_connected": _roce_connected,
    "started": _started,
    "infiniband": Subnet,
    "infiniband_unmanaged": _infiniband_unmanaged,
    "ethernet_frames": _ethernet_frames,
    "mlx5_node": _mlx5_node,
    "mlx5_rings": _mlx5_rings,
    "mlx5_spread": _mlx5_spread,
    "mlx5_started": _mlx5_started,
    "mlx5_roce": _mlx5_roce,
    "mlx5_connected": _mlx5_connected,
    "mlx5_registering": _mlx5_registering,
    "mlx5_paged": _mlx5_paged,
    "mlx5_user": _mlx5_user,
    "mlx5_alone": lambda: Mlx5Node(1),
    "gen4_up": _gen4_up,
    "gen1_up": gen1_pair.Pair,
    "switchtec_up": _switchtec_up,
}


LONGEST = 28_000
"""Bytes of an input: longer ones are left out."""


def shortened(target: str, header: bytes, steps: bytes) -> bytes:
    """An input: what a prologue has done is not told again."""
    best = 0
    for number in guests.NAMES[target]:
        before = guests.prologue(target, number)
        if steps.startswith(before) and len(before) > len(guests.prologue(target, best)):
            best = number
    return bytes((best,)) + header + steps[len(guests.prologue(target, best)) :]


def through_bar0() -> None:
    """Have every node of the unit tests of mlx5 send its commands and doorbells as a guest does.

    Its rings are small, so that inputs are short.
    """
    mlx5_node.LOG_CQ, mlx5_node.LOG_EQ = 4, 4
    for name in ("make_adapter", "carry_out", "store"):
        setattr(Mlx5Node, name, getattr(QueueNode, name))


class Plugin:
    """For pytest: writes an input for each test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorder = Recorder()
        self.recorder.listen()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Around set-up, call and tear-down."""
        with self.recorder.taping() as tape:
            yield
        if not tape.clean or not tape.target:
            return
        data = shortened(tape.target, bytes(tape.header), tape.content())
        self._write(tape.target, data)

    def _write(self, target: str, data: bytes) -> None:
        if len(data) <= LONGEST:
            path = self.folder / target / hashlib.sha1(data).hexdigest()[:12]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def main() -> int:
    """Exit status of pytest."""
    through_bar0()
    if len(sys.argv) < 2:
        recorder = Recorder()
        recorder.listen()
        for name, begin in BEGINNINGS.items():
            with recorder.taping() as tape:
                begin()
            path = guests.FOLDER / tape.target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tape.content())
        return 0
    words = ["-q", "-p", "no:cacheprovider", *sys.argv[2:]]
    return int(pytest.main(words, plugins=[Plugin(Path(sys.argv[1]))]))


if __name__ == "__main__":
    sys.exit(main())
