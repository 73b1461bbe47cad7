"""Commands on the adapter as a whole: start and stop, pages, revision, capabilities."""

from __future__ import annotations

from bluebridge.device.layout.mlx5 import caps
from bluebridge.device.layout.mlx5.caps import QUERY_CAP_OFFSET
from bluebridge.device.layout.mlx5.commands import INPUT, Opcode, Status
from bluebridge.device.layout.mlx5.device_commands import (
    ADAPTER_BLOCK_OFFSET,
    BOARD_ID_BYTES,
    DRIVER_VERSION,
    MANAGE_PAGES_IN,
    MANAGE_PAGES_OUT,
    PAGES_GIVEN,
    PAGES_UNAVAILABLE,
    QUERY_ADAPTER,
    QUERY_ISSI,
    QUERY_PAGES,
    SET_ISSI,
    TAKE_PAGES,
)
from bluebridge.device.layout.pci import VENDOR_MELLANOX
from bluebridge.device.mlx5.adapter import Adapter, Stage
from bluebridge.device.mlx5.commands.command import Rule, nothing
from bluebridge.device.mlx5.settings.config import BOARD_ID
from bluebridge.device.mlx5.settings.refused import Refused

ISSI = 1
"""The only revision of commands beside 0 that drivers know."""
OUI = 0x0002C9
MAX_PAGES = 1 << 16
PAGE = 4096


def enable_hca(adapter: Adapter, data: bytes) -> None:
    """Take the adapter into use."""
    adapter.stage = max(adapter.stage, Stage.ENABLED)


def init_hca(adapter: Adapter, data: bytes) -> None:
    """Start the adapter, after its capabilities are chosen."""
    if adapter.stage is Stage.INITIALISED:
        raise Refused(Status.BAD_SYS_STATE, "the adapter is initialised already")
    adapter.stage = Stage.INITIALISED


def teardown_hca(adapter: Adapter, data: bytes) -> None:
    """Stop the adapter and forget all objects that software left."""
    adapter.clear()


def disable_hca(adapter: Adapter, data: bytes) -> None:
    """Give the adapter out of use."""
    adapter.reset()


def query_issi(adapter: Adapter, data: bytes) -> bytes:
    """Return the revisions of commands that there are, by bits."""
    return bytes(QUERY_ISSI.pack(current=adapter.issi, supported=1 | 1 << ISSI))


def set_issi(adapter: Adapter, data: bytes) -> None:
    """Choose a revision of commands."""
    wanted = SET_ISSI.get(data, "current")
    if wanted > ISSI:
        raise Refused(Status.BAD_PARAM, f"ISSI {wanted}")
    adapter.issi = wanted


def query_pages(adapter: Adapter, data: bytes) -> bytes:
    """Return the number of pages that the adapter wants: none, as it has memory of its own.

    Once it has stopped it wants back to the driver what that lent nevertheless.
    """
    return bytes(QUERY_PAGES.pack(count=0))


def manage_pages(adapter: Adapter, data: bytes) -> bytes:
    """Take pages from a driver, or return them."""
    kind, count = MANAGE_PAGES_IN.get(data, "op_mod"), MANAGE_PAGES_IN.get(data, "count")
    if kind == TAKE_PAGES:
        taken = [adapter.given_pages.pop() for _ in range(min(count, len(adapter.given_pages)))]
        head = MANAGE_PAGES_OUT.pack(count=len(taken))
        return bytes(head) + b"".join(page.to_bytes(8, "big") for page in taken)
    if kind != PAGES_GIVEN:
        if kind == PAGES_UNAVAILABLE:
            return b""
        raise Refused(Status.BAD_PARAM, f"MANAGE_PAGES with op_mod {kind}")
    if len(adapter.given_pages) + count > MAX_PAGES:
        raise Refused(Status.LIM_ERR, f"{count} pages more")
    listed = data[MANAGE_PAGES_IN.size :]
    if len(listed) < 8 * count:
        raise Refused(Status.BAD_INP_LEN, f"{len(listed) // 8} pages of {count}")
    pages = {int.from_bytes(listed[at : at + 8], "big") for at in range(0, 8 * count, 8)}
    if any(page % PAGE for page in pages):
        raise Refused(Status.BAD_PARAM, "an address of no page")
    adapter.given_pages |= pages
    return b""


def query_hca_cap(adapter: Adapter, data: bytes) -> bytes:
    """Return a group of capabilities: as they are now, or the most that the adapter can."""
    group, current = divmod(INPUT.get(data, "op_mod"), 2)
    found = adapter.capabilities.now(group) if current else adapter.capabilities.most(group)
    return bytes(QUERY_CAP_OFFSET) + found


def set_hca_cap(adapter: Adapter, data: bytes) -> None:
    """Choose what the adapter shall do, before INIT_HCA."""
    if adapter.stage is Stage.INITIALISED:
        raise Refused(Status.BAD_SYS_STATE, "capabilities are chosen before INIT_HCA")
    adapter.capabilities.choose(INPUT.get(data, "op_mod") // 2, data[QUERY_CAP_OFFSET:])


def query_adapter(adapter: Adapter, data: bytes) -> bytes:
    """Return who made the board, and its identity."""
    board = BOARD_ID.encode().ljust(BOARD_ID_BYTES, b"\0")
    block = QUERY_ADAPTER.pack(ieee_vendor_id=OUI, vsd_vendor_id=VENDOR_MELLANOX, board_id=board)
    return bytes(ADAPTER_BLOCK_OFFSET) + bytes(block)


def set_driver_version(adapter: Adapter, data: bytes) -> None:
    """Keep the version that a driver gives itself, for people who ask."""
    text = DRIVER_VERSION.get_raw(data, "text").partition(b"\0")[0]
    adapter.driver = text.decode("ascii", "replace")


RULES: dict[int, Rule] = {
    Opcode.ENABLE_HCA: Rule(enable_hca, needs=Stage.DISABLED),
    Opcode.DISABLE_HCA: Rule(disable_hca, needs=Stage.ENABLED),
    Opcode.INIT_HCA: Rule(init_hca, needs=Stage.ENABLED),
    Opcode.TEARDOWN_HCA: Rule(teardown_hca, needs=Stage.ENABLED),
    Opcode.QUERY_ISSI: Rule(query_issi, needs=Stage.ENABLED),
    Opcode.SET_ISSI: Rule(set_issi, needs=Stage.ENABLED),
    Opcode.QUERY_PAGES: Rule(query_pages, needs=Stage.ENABLED),
    Opcode.MANAGE_PAGES: Rule(manage_pages, needs=Stage.ENABLED),
    Opcode.QUERY_HCA_CAP: Rule(query_hca_cap, needs=Stage.ENABLED),
    Opcode.SET_HCA_CAP: Rule(set_hca_cap, QUERY_CAP_OFFSET + caps.GROUP_BYTES, Stage.ENABLED),
    Opcode.QUERY_ADAPTER: Rule(query_adapter, needs=Stage.ENABLED),
    Opcode.SET_DRIVER_VERSION: Rule(set_driver_version, DRIVER_VERSION.size, Stage.ENABLED),
    Opcode.NOP: Rule(nothing, needs=Stage.ENABLED),
}
