"""The items of ports (in the words of `ibv_devinfo`, `rdma`), congestion, bridges, DMA channels."""

from __future__ import annotations

from collections.abc import Mapping

from bluebridge.device.layout.fields import Register, RegisterBlock
from bluebridge.device.layout.ib.mad import PORT_INFO
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.device.layout.ntb.models import BY_NAME, BridgeModel
from bluebridge.device.layout.ntb.uses import Use
from bluebridge.host_tools.show.registers import lines_of, value_at
from bluebridge.host_tools.show.text import Item, Kind, Row, fields, gid_text, told

_LAYERS = {"ETHERNET": "Ethernet", "INFINIBAND": "InfiniBand"}
_STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE"}
_PHYSICAL = {1: "SLEEP", 2: "POLLING", 3: "DISABLED", 5: "LINK_UP"}
_SPEEDS = {64: "40 Gb/s", 1: "10 Gb/s"}
_LANES = {1: 1, 2: 4, 4: 8, 8: 12}
_LANE_GBITS = {1: 2.5, 2: 5.0, 4: 10.0}
_RDMA = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")

ECN = Kind(
    "ecn", "queue pairs on a wire of packets", "a QPN", dict, ("lqpn",),
    (
        "lqpn", "rqpn", "ce-seen", "cnps-sent", "cnps-received", "rate", "target", "alpha",
        "limited",
    ),
    frozenset(("lqpn", "rqpn")),
)  # fmt: skip

_LINKS = {True: "up", False: "down", None: "kept by software"}

DMA = Kind(
    "dma", "channels", "a channel, from 0 on", dict, ("channel",),
    (
        "channel", "state", "error", "chain", "next", "last-done", "done", "wanted", "bytes-left",
        "completion",
    ),
    frozenset(("chain", "next", "last-done", "completion")),
)  # fmt: skip


def port(row: Row) -> Item:
    """Return the item of a port; one without RDMA is told in these words."""
    if "rdma_counters" not in row:
        return told(row)
    subnet = bytes.fromhex(row["port_info"]) if "port_info" in row else None
    rdma = row["rdma_counters"].values()
    return {
        "port": row["port"],
        "link_layer": _LAYERS[row["link_layer"]],
        "cable": "in" if row["cable"] else "out",
        **(_ethernet(row) if subnet is None else _infiniband(subnet)),
        "gid": {index: gid_text(bytes.fromhex(gid)) for index, gid in row["gids"].items()},
        "roce": {} if subnet else {i: f"v{v}" for i, v in row["roce_versions"].items()},
        "pkey": {index: f"{pkey:#06x}" for index, pkey in row.get("pkeys", {}).items()},
        "qp0": row["special_qpn"] or None,
        "counters": row["counters"],
        "rdma": {name: sum(each[name] for each in rdma) for name in _RDMA},
    }


def _ethernet(row: Row) -> Item:
    steering = {name: qpn for name, qpn in row["steering"].items() if qpn is not None}
    return {
        "state": "ACTIVE" if row["link_up"] else "DOWN",
        "opened": row["open"],
        "speed": _SPEEDS.get(row["properties"]["link_speed"], "unknown"),
        "mtu": row["mtu"],
        "mac": row["mac"],
        "mac-table": row["macs"],
        "vlan-table": row["vlans"],
        "steering": steering,
    }


def _infiniband(info: bytes) -> Item:
    def get(name: str) -> int:
        return PORT_INFO.get(info, name)

    lanes, each = _LANES.get(get("width_active"), 0), _LANE_GBITS.get(get("speed_active"), 0.0)
    return {
        "state": _STATES.get(get("state"), "unknown"),
        "phys_state": _PHYSICAL.get(get("physical_state"), "unknown"),
        "speed": f"{lanes * each:g} Gb/s ({lanes}X)",
        "mtu": MTU_BYTES.get(get("neighbour_mtu")),
        **fields(PORT_INFO, info, "lid lmc sm_lid sm_sl"),
    }


PORTS = Kind(
    "ports", "ports", "a port, from 1 on", port, ("port",),
    hexadecimal=frozenset(("qp0", "steering")),
)  # fmt: skip


def bridge(row: Row) -> Item:
    """Return the item of one side of a bridge."""
    registers = _Registers(BY_NAME[row["model"]], lines_of(row), row["partition"] or 0)
    return {
        "model": row["model"],
        "link": _LINKS[row["link"]],
        "link-wanted": row["wanted"],
        "partition": row["partition"],
        "locked-up": row["hung"],
        "window": {_name(each): _window(each, registers) for each in row["windows"]},
        "doorbell": f"{registers.value(Use.PENDING):#x}",
        "doorbell-mask": f"{registers.value(Use.MASK):#x}",
        "doorbells-lost": row["lost"],
        "scratchpad": registers.scratchpads(),
        "message": registers.messages(),
    }


class _Registers:
    """The values of a bridge's registers by their use, of the guest's partition `copy`."""

    def __init__(self, model: BridgeModel, lines: Mapping[int, bytes], copy: int) -> None:
        self._lines = lines
        self._copy = copy
        self._found: dict[tuple[Use, int], tuple[RegisterBlock, Register]] = {}
        for block in model.blocks:
            for register in block.registers:
                use = model.uses.registers.get((block.name, register.name))
                if use is not None:
                    self._found[use.use, use.number] = block, register

    def value(self, use: Use, number: int = 0) -> int:
        """Return the value of the register with a use, for slot or BAR `number`."""
        return value_at(self._lines, *self._found[use, number], self._copy)

    def limit(self, bar: int) -> Item:
        """Return the end of the window in a BAR; empty where the model has no register for it."""
        if (Use.WINDOW_LIMIT, bar) not in self._found:
            return {}
        return {"limit": f"{self.value(Use.WINDOW_LIMIT, bar):#x}"}

    def scratchpads(self) -> Item:
        """Return the scratchpads that are not zero, by number."""
        if (Use.OWN_SCRATCHPAD, 0) not in self._found:
            return {}
        block, register = self._found[Use.OWN_SCRATCHPAD, 0]
        values = ((n, value_at(self._lines, block, register, n)) for n in range(block.count))
        return {str(number): f"{value:#010x}" for number, value in values if value}

    def messages(self) -> Item:
        """Return the peer's messages that stand in a slot, by slot."""
        found: Item = {}
        for slot in sorted(number for use, number in self._found if use is Use.INBOX):
            value = self.value(Use.INBOX, slot)
            fresh = self.value(Use.INBOX_STATUS, slot) & 1
            if value or fresh:
                found[str(slot)] = f"{value:#x}{' new' if fresh else ''}"
        return found


def _name(window: Row) -> str:
    lut = window["lut"]
    return f"bar{window['bar']}" if lut is None else f"bar{window['bar']}.lut{lut}"


def _window(window: Row, registers: _Registers) -> Item:
    return {
        "state": "open" if window["length"] else "closed",
        "xlat": f"{window['base']:#x}",
        "size": f"{window['length']:#x}",
        **registers.limit(window["bar"]),
        "met-closed": window["closed"],
        "aborts": window["aborts"],
    }


NTB = Kind("ntb", "bridges", "nothing: a guest has one bridge", bridge, ())
