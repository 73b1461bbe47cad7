"""The items of memory regions and windows, with the names of `rdma res show mr`."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout.mlx4.contexts import MPT
from bluebridge.host_tools.show.item import Item, Kind, Row

_RIGHTS = ("local_read", "local_write", "remote_read", "remote_write", "remote_atomic")
_BIND = "bind_enable"
_ADDRESS_BITS = 64
_ALL_MEMORY = (1 << _ADDRESS_BITS) - 1


def region(row: Row) -> Sequence[Item]:
    """Return the item of an entry of the protection table, whose key is both lkey and rkey."""
    everything = row["length"] == _ALL_MEMORY
    return [
        {
            "function": row["function"],
            "rkey": row["lkey"],
            "lkey": None if row["window"] else row["lkey"],
            "type": _type(row),
            "state": _state(row),
            "iova": row["iova"],
            "mrlen": "all memory" if everything else row["length"],
            "pdn": row["pd"],
            "access": _access(row["rights"]),
            "page-size": _page_size(row),
            "pieces": row["pieces"],
            "windows": row["windows"],
            "window-of": row["parent"],
            "lqpn": row["qpn"] or None,
            "mtt-addr": MPT.get(bytes.fromhex(row["entry"]), "mtt_addr"),
        }
    ]


def _page_size(row: Row) -> int | None:
    """Return the page size in bytes; None without pages, and for an entry not checked yet."""
    shift = row["page_shift"]
    return None if row["physical"] or shift >= _ADDRESS_BITS else 1 << shift


def _type(row: Row) -> str:
    if row["window"]:
        return "MW type 2" if row["second_type"] else "MW type 1"
    if row["fast"]:
        return "MR fast registration"
    return "MR physical" if row["physical"] else "MR"


def _state(row: Row) -> str:
    if row["window"]:
        return "bound" if row["parent"] is not None else "unbound"
    return "free" if row["free"] else "valid"


def _access(rights: int) -> list[str]:
    word = rights.to_bytes(4, "big")
    names = [name.upper() for name in _RIGHTS if MPT.get(word, name)]
    return [*names, "MW_BIND"] if MPT.get(word, _BIND) else names


MR = Kind(
    "mr",
    "memory regions",
    "an lkey or rkey",
    region,
    ("rkey",),
    ("rkey", "lkey", "type", "state", "iova", "mrlen", "pdn", "access", "page-size", "windows"),
    frozenset(("rkey", "lkey", "iova", "window-of", "lqpn", "mtt-addr")),
)
