"""ACCESS_REG: registers by number, with a rule for each that is more than zeros.

A register that has no rule reads as zeros and takes writes without effect: Linux asks for some
whether they are there or not.
"""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.device_commands import ACCESS_REG, REGISTER_READ, REGISTER_WRITE
from bluebridge.device.mlx5.adapter import Adapter, Stage
from bluebridge.device.mlx5.commands import management_registers, port_commands
from bluebridge.device.mlx5.commands.access_register import Access
from bluebridge.device.mlx5.commands.command import Rule
from bluebridge.device.mlx5.settings.refused import Refused

MOST_BYTES = 4096

REGISTERS: dict[int, Access] = {**management_registers.REGISTERS, **port_commands.REGISTERS}
"""Handlers of ACCESS_REG by the register's number; others answer zeros."""


def access_reg(adapter: Adapter, data: bytes) -> bytes:
    """Read or write a register."""
    kind = ACCESS_REG.get(data, "op_mod")
    if kind not in (REGISTER_READ, REGISTER_WRITE):
        raise Refused(Status.BAD_PARAM, f"ACCESS_REG with op_mod {kind}")
    wanted = data[ACCESS_REG.size : ACCESS_REG.size + MOST_BYTES]
    access = REGISTERS.get(ACCESS_REG.get(data, "register"))
    answer = b"" if access is None else access(adapter, wanted, kind == REGISTER_WRITE)
    return bytes(ACCESS_REG.size) + answer


RULES: dict[int, Rule] = {Opcode.ACCESS_REG: Rule(access_reg, needs=Stage.ENABLED)}
