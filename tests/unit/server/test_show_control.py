"""The device server's answers to `show`: what they hold, that they end, that nothing changes."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from bluebridge.device.layout.mlx4.contexts import QPC
from bluebridge.device.layout.ntb import models
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.pci.config_space import Bar
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.server import show_control
from bluebridge.device.server.show_control import ShowCommands
from bluebridge.device.show import Tables, bridge_tables, engine_tables, hca_tables
from bluebridge.host_tools.show.ports import PORTS
from tests.models import ntb_pair
from tests.models.ib_node import Subnet
from tests.models.rdma_node import Pair, SendOpcode, remote


class Space:
    """The config space of a function that has a BAR and nothing else."""

    bars = (Bar(0, 1 << 20),)

    def config_snapshot(self) -> bytes:
        return bytes.fromhex("b3150310").ljust(4096, b"\0")


SPACE = cast(Endpoint, Space())


def commands(hcas: dict[str, Hca], more: dict[str, Tables] | None = None) -> ShowCommands:
    return ShowCommands({n: hca_tables(h, SPACE) for n, h in hcas.items()} | (more or {}), hcas)


def told(show: ShowCommands, line: str) -> list[dict[str, Any]]:
    """The rows of an answer and of all that follow it, without what goes before them."""
    words = line.split()
    rows = [json.loads(text) for text in show.show(words)]
    while "more" in rows[-1]:
        more = [words[0], words[1], "more", str(rows.pop()["more"])]
        rows += [json.loads(text) for text in show.show(more)]
    return rows[1:] if "functions" in rows[0] else rows


@pytest.fixture
def pair() -> Pair:
    return Pair().connect()


def test_a_queue_pair_as_it_was_programmed(pair: Pair) -> None:
    show = commands({"a": pair.a.hca, "b": pair.b.hca})
    (row,) = told(show, "a qp")
    context = bytes.fromhex(row["context"])
    assert (row["function"], row["lqpn"], row["type"], row["state"]) == ("a", 0x800240, "RC", "RTS")
    assert QPC.get(context, "remote_qpn") == pair.qb.qpn
    assert QPC.get_raw(context, "pri_rgid") == pair.b.gid
    names = ("sq-size", "sq-next", "sq-rung", "unacked")
    assert [row[name] for name in names] == [16, 0, False, 0]
    assert told(show, f"a qp {pair.qa.qpn:#x}") == told(show, f"a qp {pair.qa.qpn}") == [row]


def test_what_waits_for_an_answer(pair: Pair) -> None:
    show = commands({"a": pair.a.hca})
    pair.b.hca.adapter.ports[0].plug(False)
    address, key = pair.a.memory(4096)
    pair.post_send(SendOpcode.RDMA_WRITE, remote(address, key))
    (row,) = told(show, "a qp")
    assert (row["unacked"], row["oldest-unacked"], row["sq-next"]) == (1, 0, 1)
    pair.run(0.1)
    (row,) = told(show, "a qp")
    assert row["retries"] == 1


def test_every_kind_of_an_hca(pair: Pair) -> None:
    node = pair.a
    node.create_srq(3)
    address, key = node.memory(8192)
    show = commands({"a": node.hca})
    assert {row["cqn"] for row in told(show, "a cq")} == {pair.qa.cq.number}
    assert [row["eqn"] for row in told(show, "a eq")] == [node.async_eq.number, node.comp_eq.number]
    assert [row["srqn"] for row in told(show, "a srq")] == [3]
    (region,) = told(show, f"a mr {key | 0x55:#x}")  # whatever its low byte
    assert (region["lkey"], region["iova"], region["length"]) == (key, address, 8192)
    (port,) = told(show, "a ports 1")
    assert (port["cable"], port["link_up"], port["mac"]) == (True, True, node.mac.hex(":"))
    assert port["gids"]["0"] == node.gid.hex()
    (registers,) = told(show, "a regs")
    assert registers["failed"] is False
    (space,) = told(show, "a config")
    assert (space["config"], space["bars"]) == ("b3150310", {"0": 1 << 20})


def test_all_functions_of_a_guest_or_one(pair: Pair) -> None:
    show = commands({"a": pair.a.hca, "a.1": pair.b.hca, "a2": pair.b.hca})
    assert [row["function"] for row in told(show, "a qp")] == ["a", "a.1"]
    assert [row["function"] for row in told(show, "a.1 qp")] == ["a.1"]


def test_looking_changes_nothing(pair: Pair) -> None:
    node = pair.a
    node.host.events.clear()
    before = node.hca.commands.read(0, 0x1C)
    show = commands({"a": node.hca})
    for what in ("qp", "cq", "srq", "eq", "mr", "ports", "regs"):
        assert told(show, f"a {what}") == told(show, f"a {what}")
    assert node.hca.commands.read(0, 0x1C) == before
    assert not node.host.events  # no DMA, no interrupt, no note


def test_an_answer_goes_on_where_it_ended(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show_control, "PAGE_BYTES", 1)
    numbers = [0x300 + index for index in range(20)]
    for number in numbers:
        pair.a.create_qp(number)
    show = commands({"a": pair.a.hca, "a.1": pair.b.hca})
    assert len(show.show(["a", "qp"])) == 3  # how the functions are, a row, where it ends
    rows = told(show, "a qp")
    assert [row["lqpn"] for row in rows] == [pair.qa.qpn, *numbers, pair.qb.qpn]


def test_what_is_gone_meanwhile_is_left_out(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show_control, "PAGE_BYTES", 1)
    pair.a.create_qp(0x300)
    show = commands({"a": pair.a.hca})
    where = json.loads(show.show(["a", "qp"])[-1])["more"]
    pair.a.hca.adapter.qps.destroy(0x300)
    assert show.show(["a", "qp", "more", str(where)]) == []


def test_answers_that_nobody_goes_on_with_are_forgotten(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show_control, "PAGE_BYTES", 1)
    pair.a.create_qp(0x300)
    show = commands({"a": pair.a.hca})
    first = json.loads(show.show(["a", "qp"])[-1])["more"]
    for _ in range(show_control.LISTINGS):
        show.show(["a", "qp"])
    with pytest.raises(ValueError, match="ask for all again"):
        show.show(["a", "qp", "more", str(first)])


@pytest.mark.parametrize(
    "line",
    ["", "a", "c qp", "a frob", "a ntb", "a qp 7", "a qp x", "a qp -1", "a qp 0x1ffffffffffffffff",
     "a qp more 1", "a qp more x", "a qp 1 2 3", "a.5 qp", "a ports 2", "a mr 0x100"],
)  # fmt: skip
def test_bad_words_are_refused(pair: Pair, line: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        commands({"a": pair.a.hca}).show(line.split())


def test_a_failed_adapter_says_why(pair: Pair) -> None:
    show = commands({"a": pair.a.hca})
    pair.a.hca.fail("parity")
    (head,) = map(json.loads, show.show(["a", "qp"]))
    assert head == {"functions": [{"name": "a", "count": 0, "failed": True, "initialised": False}]}
    (registers,) = told(show, "a regs")
    assert b"parity" in bytes.fromhex(registers["lines"][str(0x1F020)])


def test_a_bridge_and_a_dma_engine() -> None:
    pair = ntb_pair.Pair()
    pair.bring_up()
    pair.a.open_window(0, 0x10_0000, 0x8000)
    pair.b.write(0x8080, 4, 0xBEEF)  # a's first scratchpad
    show = ShowCommands(
        {
            "a.ntb4": bridge_tables(pair.a.bridge, models.GEN4, SPACE),
            "a.dma": engine_tables(pair.a.engine, SPACE),
        },
        {},
    )
    (row,) = told(show, "a ntb")
    assert (row["function"], row["model"], row["link"]) == ("a.ntb4", "intel-gen4", True)
    first, second = row["windows"]
    assert (first["bar"], first["base"], first["length"]) == (2, 0x10_0000, 0x8000)
    assert (second["bar"], second["length"]) == (4, 0)
    assert bytes.fromhex(row["lines"]["128"])[:4] == (0xBEEF).to_bytes(4, "little")
    assert [row["channel"] for row in told(show, "a dma")] == [0, 1, 2, 3]
    assert [row["function"] for row in told(show, "a config")] == ["a.ntb4", "a.dma"]


def test_an_infiniband_port_as_its_subnet_manager_set_it() -> None:
    subnet = Subnet()
    (row,) = told(commands({"a": subnet.a.hca}), "a ports")
    (port,) = PORTS.items(row)
    assert [port[name] for name in ("link_layer", "state", "phys_state")] == [
        "InfiniBand", "ACTIVE", "LINK_UP"
    ]  # fmt: skip
    assert (port["lid"], port["speed"]) == (subnet.a.agent.lid, "40 Gb/s (4X)")
    assert port["pkey"] == {"0": "0xffff"}
    assert port["gid"]["0"].startswith("fe80::")
