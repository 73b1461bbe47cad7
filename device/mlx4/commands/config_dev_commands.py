"""The command CONFIG_DEV, with settings of the whole device.

Linux `mlx4/fw.c: mlx4_config_dev_retrieval, mlx4_config_roce_v2_port`.
"""

from __future__ import annotations

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.ports import CONFIG_DEV, CONFIG_DEV_ROCE_PORT
from bluebridge.device.layout.net.ip import ROCE_PORT
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.settings.refusal import CommandError

SET, GET = 0, 1
RX_CHECKSUM_MODE = 0x22
"""Checksum mode of both ports: a verdict on TCP and UDP, the sum of other packets."""


def config_dev(adapter: Adapter, command: Command) -> bytes | None:
    """Return how received checksums are reported, or set the RoCE v2 port of a ConnectX-3 Pro."""
    if command.op_modifier == GET:
        return bytes(CONFIG_DEV.pack(rx_checksum=RX_CHECKSUM_MODE))
    if not adapter.config.features.pro or command.op_modifier != SET:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")
    mailbox = command.mailbox(CONFIG_DEV.size)
    flags = CONFIG_DEV.get(mailbox, "update_flags")
    if flags & ~CONFIG_DEV_ROCE_PORT:
        raise CommandError(Status.BAD_PARAM, f"settings {flags:#x}")
    port = CONFIG_DEV.get(mailbox, "roce_port")
    if flags and port != ROCE_PORT:
        raise CommandError(Status.BAD_PARAM, f"UDP port {port}, RoCE v2 has {ROCE_PORT}")
    return None


RULES: dict[int, Rule] = {Opcode.CONFIG_DEV: Rule(config_dev)}
