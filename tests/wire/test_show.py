"""`show` of a real device server, held against what a driver programmed; files in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.layout.ntb import models
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.verbs import QpInit, QpType, WcStatus, WrOpcode
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.show.show_command import KINDS, Answer, Tell, ask
from bluebridge.host_tools.show.text import Item
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.players import PSN, SIZE, Player, connected, driven
from tests.models.server import functions
from tests.wire.conftest import StartServer


def teller(folder: Path) -> Tell:
    """Questions to the server."""
    return lambda line: hardware.tell(folder / "control", line)


def shown(folder: Path, name: str, kind: str, number: int | None = None) -> Answer:
    """Return what `bluebridge show NAME KIND` would have."""
    asked = None if number is None else hex(number)
    return ask(teller(folder), name, KINDS[kind], asked)


def one(folder: Path, name: str, kind: str, number: int | None = None) -> Item:
    """The only item."""
    (item,) = shown(folder, name, kind, number).items
    return item


def serve(start_server: StartServer, folder: Path, *more: str) -> None:
    """Two HCAs and a control socket."""
    words = (*functions(folder), "--control", str(folder / "control"), *more)
    start_server("bluebridge.device", *words)


def check_pair(folder: Path, a: Player, b: Player) -> None:
    """The first player's objects, as the server shows them."""
    item = one(folder, "a", "qp", a.qp.qpn)
    assert [item[name] for name in ("rqpn", "type", "state", "sq-psn", "unacked")] == [
        b.qp.qpn, "RC", "RTS", PSN, 0
    ]  # fmt: skip
    assert item["gid"] is not None
    assert one(folder, "a", "cq", item["scqn"])["state"] == "valid"
    region = one(folder, "a", "mr", a.mr.lkey)
    assert (region["iova"], region["mrlen"]) == (a.address, SIZE)
    assert region["pdn"] == item["pdn"]
    assert "REMOTE_WRITE" in region["access"]
    assert one(folder, "a", "ports")["state"] == "ACTIVE"


def test_what_a_driver_programmed(start_server: StartServer, tmp_path: Path) -> None:
    serve(start_server, tmp_path)
    assert shown(tmp_path, "a", "qp").functions[0]["initialised"] is False
    with driven(tmp_path) as (one_side, other):
        a, b = connected(one_side, other)
        check_pair(tmp_path, a, b)
        a.send(WrOpcode.RDMA_WRITE, [a.sge(0, 64)], b)
        a.expect(WcStatus.SUCCESS)
        item = one(tmp_path, "a", "qp", a.qp.qpn)
        assert (item["sq-psn"], item["sq-rung"]) == (PSN + 1, True)
        assert item["sq-next"] > 0
        assert one(tmp_path, "b", "qp", b.qp.qpn)["rq-psn"] == PSN + 1
        a.qp.modify_err()
        assert one(tmp_path, "a", "qp", a.qp.qpn)["state"] == "ERR"
    assert shown(tmp_path, "a", "qp").items == []


def test_config_space_and_registers(start_server: StartServer, tmp_path: Path) -> None:
    serve(start_server, tmp_path)
    bus = SocketBus(tmp_path / "a")
    open_hca(bus)  # never closed: its device fails
    items = {item["register"]: item["value"] for item in shown(tmp_path, "a", "config").items}
    assert items["Device"].startswith("15b3:1003")
    assert "BusMaster+" in items["Control"]
    assert any(name.endswith("MSI-X") for name in items)
    hardware.tell(tmp_path / "control", "fault a parity in the TPT")
    (buffer,) = shown(tmp_path, "a", "regs", 0x1F020).items
    assert buffer["fields"] == "internal error: parity in the TPT"
    assert shown(tmp_path, "a", "qp").functions[0]["failed"] is True
    bus.close()


def test_many_objects_come_in_parts(start_server: StartServer, tmp_path: Path) -> None:
    serve(start_server, tmp_path)
    lines: list[str] = []

    def tell(line: str) -> list[str]:
        lines.append(line)
        return hardware.tell(tmp_path / "control", line)

    with driven(tmp_path, "a") as (ctx,):
        pd = ctx.alloc_pd()
        cq = ctx.create_cq(16)
        qps = [
            pd.create_qp(QpInit(QpType.RC, cq, cq, max_send_wr=4, max_recv_wr=4))
            for _ in range(200)
        ]
        for qp in qps:
            qp.modify_init()
        answer = ask(tell, "a", KINDS["qp"], None)
        assert {qp.qpn for qp in qps} <= {item["lqpn"] for item in answer.items}
        assert answer.functions[0]["count"] == len(answer.items)
        assert len(lines) > 1


@pytest.mark.parametrize("model", models.MODELS, ids=lambda model: model.name)
def test_bridges_and_engines(
    start_server: StartServer, tmp_path: Path, model: models.BridgeModel
) -> None:
    words = (*functions(tmp_path, "ntb"), "--dma", f"name=a,socket={tmp_path / 'dma'}")
    where = ("--ntb-model", model.name, "--control", str(tmp_path / "control"))
    start_server("bluebridge.device", *words, *where)
    bridge = f"a.{model.log_suffix}"
    bus = SocketBus(tmp_path / "a")
    registers = shown(tmp_path, bridge, "regs").items
    widths = {r.offset + b.base: r.width for b in model.blocks for r in b.registers}
    for item in registers:
        if widths.get(item["offset"]) == 32:  # as the guest reads them, which are little-endian
            read = bus.read32(0, item["offset"]).to_bytes(4, "big")
            assert int(item["value"], 16) == int.from_bytes(read, "little"), item
    bus.close()
    page = one(tmp_path, "a", "ntb")
    assert (page["function"], page["model"]) == (bridge, model.name)
    assert {window["state"] for window in page["window"].values()} == {"closed"}
    assert [item["state"] for item in shown(tmp_path, "a", "dma").items] == ["halted"] * 4
    assert {item["function"] for item in shown(tmp_path, "a", "regs").items} == {bridge, "a.dma"}
    assert len(shown(tmp_path, "b", "config").functions) == 1
    with pytest.raises(UsageError, match="a has no qp, but ntb"):
        shown(tmp_path, "a", "qp")


def test_what_was_when_the_client_was_lost(start_server: StartServer, tmp_path: Path) -> None:
    serve(start_server, tmp_path)
    bus = SocketBus(tmp_path / "a")
    ctx = open_hca(bus)  # never closed: its guest is gone
    a, _ = connected(ctx, ctx)
    bus.close()
    while shown(tmp_path, "a", "qp").functions[0]["initialised"]:
        pass
    assert shown(tmp_path, "a", "qp").items == []
    kept = ask(teller(tmp_path), "a", KINDS["qp"], hex(a.qp.qpn), last=True)
    (item,) = kept.items
    assert (item["state"], item["sq-psn"]) == ("RTS", PSN)
    with pytest.raises(UsageError, match="a had no qp 7"):
        ask(teller(tmp_path), "a", KINDS["qp"], "7", last=True)
    assert ask(teller(tmp_path), "b", KINDS["qp"], None, last=True).items == []
