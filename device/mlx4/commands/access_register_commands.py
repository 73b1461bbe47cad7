"""The command ACCESS_REG, which knows one register: PTYS, the port's link modes.

Linux `mlx4/fw.c: mlx4_ACCESS_REG`, `en_ethtool.c: ethtool_get_ptys_link_ksettings`. Frames move as
fast as they can whatever the mode; the mode is only reported.
"""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.ports import ACCESS_REG, PTYS, PTYS_ETHERNET, PTYS_ID, LinkMode
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.ports.properties import LINK_MODES, link_modes
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.rdma.ports.port import Port

QUERY, WRITE = 1, 2


def access_register(adapter: Adapter, command: Command) -> bytes:
    """Read or write one register; returns the request with the register's present bytes."""
    request = command.mailbox(ACCESS_REG.size + PTYS.size)
    if ACCESS_REG.get(request, "register") != PTYS_ID:
        raise CommandError(Status.BAD_PARAM, f"register {request[4:6].hex()}")
    register = request[ACCESS_REG.size :]
    port = adapter.port_of(PTYS.get(register, "port"))
    method = ACCESS_REG.get(request, "method")
    if PTYS.get(register, "protocol") != PTYS_ETHERNET or method not in (QUERY, WRITE):
        raise CommandError(Status.BAD_PARAM, f"protocol {register[3]:#x}, method {method}")
    if method == WRITE:
        modes = PTYS.get(register, "eth_admin")
        if not modes or modes & ~LINK_MODES:
            raise CommandError(Status.BAD_PARAM, f"link modes {modes:#x}")
        port.tables.link_modes = modes
    return request[: ACCESS_REG.size] + _ptys(port)


def _ptys(port: Port) -> bytes:
    modes = link_modes(port)
    used = modes & LinkMode.CR4_40G or modes
    return bytes(
        PTYS.pack(
            port=port.number,
            protocol=PTYS_ETHERNET,
            eth_capability=LINK_MODES,
            eth_admin=modes,
            eth_operational=used if port.link_up else 0,
            eth_partner=LINK_MODES if port.link_up else 0,
        )
    )


RULES: dict[int, Rule] = {Opcode.ACCESS_REG: Rule(access_register)}
