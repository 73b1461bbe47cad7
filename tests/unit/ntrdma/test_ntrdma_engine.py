"""NTRDMA's engines against a model of memory: seeds, formats, and a peer that lies."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from bluebridge.device.layout.ntrdma import commands, work
from bluebridge.guest.ntrdma.engine import memory
from bluebridge.guest.ntrdma.engine.memory import SendEntry
from bluebridge.guest.verbs.enums import WcStatus, WrOpcode
from bluebridge.guest.verbs.values import Sge
from tests.world import seeds
from tests.world.ntrdma import world as ntrdma_world
from tests.world.ntrdma.model import STATUSES, WRITES, Wrong

KINDS = {
    *WRITES,
    WrOpcode.RDMA_READ,
    WrOpcode.SEND,
    WrOpcode.SEND_WITH_IMM,
    WrOpcode.SEND_WITH_INV,
    WrOpcode.REG_MR,
    WrOpcode.LOCAL_INV,
    WrOpcode.NOP,
}
MOST_LINES = 300
ENGINE = Path(memory.__file__).parent
HANDLERS = "remote.py: self._handlers"
"""A table of methods by the codes of commands, which nobody else can reach."""


@pytest.mark.worlds
@pytest.mark.parametrize("first", range(0, 160, 80))
def test_model_and_memory_agree(first: int) -> None:
    """Deaths, delays and reordering; every seed replays alone."""
    found = seeds.each(
        "ntrdma", lambda seed: ntrdma_world.run(seed).endings, range(first, first + 80), 40
    )
    endings = sum(found, Counter[tuple[WrOpcode | Wrong, WcStatus]]())
    assert all(endings[kind, WcStatus.SUCCESS] > 0 for kind in KINDS), endings


def test_all_that_is_wrong_is_refused() -> None:
    endings: Counter[tuple[WrOpcode | Wrong, WcStatus]] = Counter()
    for seed in range(10):
        world = ntrdma_world.World(seed, trouble=False)
        world.wrong_chance = 0.5
        for _ in range(600):
            world.step()
        world.settle()
        world.check()
        endings += world.endings
    assert all(endings[wrong, STATUSES[wrong]] > 0 for wrong in Wrong), endings


def test_without_trouble_nothing_fails_and_spads_rest() -> None:
    """After initialisation no scratchpad is touched, as real bridges would lock up."""
    world = ntrdma_world.World(5, trouble=False)
    world.settle()
    before = [side.transport.spad_accesses for side in world.sides]
    for _ in range(2000):
        world.step()
    world.settle()
    assert [side.transport.spad_accesses for side in world.sides] == before
    assert world.completed > 200


def test_a_ring_while_another_is_taken_is_not_lost() -> None:
    """The peer rings between the look at a bell and its arming."""
    world = ntrdma_world.World(1, trouble=False)
    bells = world.sides[0].engine.bells
    bell = bells.observe()
    for _ in range(5):
        bells.words[bell] += 1
        assert bells.rung and bell in bells.take()
        bells.words[bell] += 1  # while what the first one told of is served
        assert bells.rung and bell in bells.take()
        assert bell not in bells.take()


def test_formats_are_those_of_the_tables() -> None:
    entry = SendEntry(1, 2, 3, 4, 5, 6, 7, 8, (Sge(9, 10, 11),)).pack()
    table = work.SEND_ENTRY
    names = ("handle", "op", "status", "recv_key", "rdma_key", "rdma_length", "rdma_address")
    found = [table.get(entry, name) for name in (*names, "immediate", "piece_count")]
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, 1]
    assert [work.PIECE.get(entry, name, 40) for name in ("address", "length", "key")] == [9, 10, 11]
    assert SendEntry.unpack(entry, 1) == (1, 2, 3, 4, 5, 6, 7, 8, [Sge(9, 10, 11)])
    assert SendEntry.unpack(entry, 0) is None
    receive = memory.pack_receive([Sge(9, 10, 11)] * 2)
    assert work.RECV_ENTRY.get(receive, "piece_count") == 2
    assert memory.unpack_receive(receive, 2) == [Sge(9, 10, 11)] * 2
    completion = memory.COMPLETION.pack(1, 2, 3, 4, 5)
    fields = ("handle", "op", "status", "length", "immediate")
    assert [work.COMPLETION.get(completion, name) for name in fields] == [1, 2, 3, 4, 5]
    segment = memory.SEGMENT.pack(1, 2)
    assert [commands.SEGMENT.get(segment, name) for name in ("address", "length")] == [1, 2]
    sizes = (memory.SEND, memory.RECV, memory.PIECE, memory.COMPLETION, memory.SEGMENT)
    tables = (table, work.RECV_ENTRY, work.PIECE, work.COMPLETION, commands.SEGMENT)
    assert [each.size for each in sizes] == [each.size for each in tables]


def test_the_engine_has_no_callback_and_no_closure() -> None:
    """Events go in, actions come out, and what waits is a record; each file is one concept."""
    found = []
    modules = {path: ast.parse(path.read_text()) for path in ENGINE.glob("*.py")}
    names = {"Callable"} | {each for module in modules.values() for each in aliases(module)}
    for path, module in modules.items():
        if path.read_text().count("\n") > MOST_LINES:
            found.append(f"{path.name}: more than {MOST_LINES} lines")
        found += [f"{path.name}: {each}" for each in callbacks(module, names)]
    assert found == [HANDLERS]


def aliases(module: ast.Module) -> list[str]:
    """The names of a module that are types of functions."""
    return [
        ast.unparse(each.targets[0])
        for each in module.body
        if isinstance(each, ast.Assign) and "Callable" in ast.unparse(each.value)
    ]


def callbacks(module: ast.Module, names: set[str]) -> list[str]:
    """Return what a module takes or keeps to call later, or makes for that."""
    found = []
    for each in ast.walk(module):
        if isinstance(each, ast.Lambda):
            found.append(f"a lambda in line {each.lineno}")
        elif isinstance(each, ast.arg | ast.AnnAssign) and each.annotation is not None:
            words = {word.id for word in ast.walk(each.annotation) if isinstance(word, ast.Name)}
            name = each.arg if isinstance(each, ast.arg) else ast.unparse(each.target)
            found += [name] * bool(words & names)
        elif isinstance(each, ast.FunctionDef):
            inner = [one for one in ast.walk(each) if isinstance(one, ast.FunctionDef)]
            found += [f"{one.name} in {each.name}" for one in inner[1:]]
    return found
