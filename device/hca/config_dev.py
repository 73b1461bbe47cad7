"""CONFIG_DEV: settings of the device as a whole (Linux `mlx4/fw.c: mlx4_config_roce_v2_port`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device.hca.command import Command, CommandError, Handler, Status
from device.layout.mlx4.commands import Opcode
from device.layout.mlx4.ports import CONFIG_DEV, CONFIG_DEV_ROCE_PORT
from device.layout.net.ip import ROCE_PORT

if TYPE_CHECKING:
    from device.hca.device import Hca

SET = 0


def config_dev(hca: Hca, command: Command) -> None:
    """A ConnectX-3 Pro is told the UDP port of RoCE v2, which has one value; others have none."""
    if not hca.config.features.pro or command.op_modifier != SET:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")
    mailbox = command.mailbox(CONFIG_DEV.size)
    flags = CONFIG_DEV.get(mailbox, "update_flags")
    if flags & ~CONFIG_DEV_ROCE_PORT:
        raise CommandError(Status.BAD_PARAM, f"settings {flags:#x}")
    port = CONFIG_DEV.get(mailbox, "roce_port")
    if flags and port != ROCE_PORT:
        raise CommandError(Status.BAD_PARAM, f"UDP port {port}, RoCE v2 has {ROCE_PORT}")


HANDLERS: dict[int, Handler] = {Opcode.CONFIG_DEV: config_dev}
