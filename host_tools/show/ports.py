"""The items of an HCA's ports, in the words of `ibv_devinfo`, `rdma link` and `ethtool -S`."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout.net.mad import PORT_INFO
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.host_tools.show.item import Item, Kind, Row, gid_text

_LAYERS = {"ETHERNET": "Ethernet", "INFINIBAND": "InfiniBand"}
_STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE"}
_PHYSICAL = {1: "SLEEP", 2: "POLLING", 3: "DISABLED", 5: "LINK_UP"}
_SPEEDS = {64: "40 Gb/s", 1: "10 Gb/s"}
_LANES = {1: 1, 2: 4, 4: 8, 8: 12}
_LANE_GBITS = {1: 2.5, 2: 5.0, 4: 10.0}
_RDMA = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")


def port(row: Row) -> Sequence[Item]:
    """Return the item of a port."""
    subnet = bytes.fromhex(row["port_info"]) if "port_info" in row else None
    rdma = row["rdma_counters"].values()
    return [
        {
            "function": row["function"],
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
    ]


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
    """Return the values that the subnet manager set in PortInfo."""

    def get(name: str) -> int:
        return PORT_INFO.get(info, name)

    lanes, each = _LANES.get(get("width_active"), 0), _LANE_GBITS.get(get("speed_active"), 0.0)
    return {
        "state": _STATES.get(get("state"), "unknown"),
        "phys_state": _PHYSICAL.get(get("physical_state"), "unknown"),
        "speed": f"{lanes * each:g} Gb/s ({lanes}X)",
        "mtu": MTU_BYTES.get(get("neighbour_mtu")),
        "lid": get("lid"),
        "lmc": get("lmc"),
        "sm_lid": get("sm_lid"),
        "sm_sl": get("sm_sl"),
    }


PORTS = Kind(
    "ports",
    "ports",
    "a port, from 1 on",
    port,
    ("port",),
    hexadecimal=frozenset(("qp0", "steering")),
)
