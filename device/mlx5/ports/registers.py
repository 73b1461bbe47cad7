"""Registers of the port, which the command ACCESS_REG reads and writes.

Linux `core/port.c`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.fabric.messages import Frames, Train
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.port_registers import (
    ETHERNET_PROTOCOL,
    MCIA,
    MCIA_BYTES,
    PAOS,
    PFCC,
    PMLP,
    PMTU,
    PPCNT,
    PPCNT_COUNTERS,
    PTYS,
    LinkMode,
    PortAdmin,
)
from bluebridge.device.layout.mlx5.registers import RegisterId
from bluebridge.device.mlx5.ports.counters import GROUPS
from bluebridge.device.mlx5.ports.vport import DEFAULT_MTU, FCS_BYTES, MAX_MTU
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.ports.cable import EEPROM
from bluebridge.device.rdma.ports.port import Port

LINK_MODES: Final = 1 << LinkMode.CR4_100G | 1 << LinkMode.CR4_40G | 1 << LinkMode.CR_25G
LANES: Final = 4
_BEST_FIRST: Final = (LinkMode.CR4_100G, LinkMode.CR4_40G, LinkMode.CR_25G)
COPPER: Final = 7
NO_MODULE: Final = 2
I2C_ADDRESS: Final = 0x50
AUTONEGOTIATION_DONE, AUTONEGOTIATION_OFF = 1, 4

PORT_REGISTERS: Final = (
    RegisterId.PMTU,
    RegisterId.PTYS,
    RegisterId.PAOS,
    RegisterId.PFCC,
    RegisterId.PMLP,
    RegisterId.PPCNT,
    RegisterId.MCIA,
)
"""The registers that are more than zeros."""


class PortRegisters:
    """The registers of one port."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._handlers: Final[dict[int, tuple[Struct, Callable[[bytearray, bool], bytes]]]] = {
            RegisterId.PMTU: (PMTU, self._mtu),
            RegisterId.PTYS: (PTYS, self._speed),
            RegisterId.PAOS: (PAOS, self._state),
            RegisterId.PFCC: (PFCC, self._pause),
            RegisterId.PMLP: (PMLP, self._lanes),
            RegisterId.PPCNT: (PPCNT, self._counters),
            RegisterId.MCIA: (MCIA, self._module),
        }
        self.reset()

    def reset(self) -> None:
        """Return to the state after power-on: cards pause, and obey pauses, unless told not to."""
        self.mtu = DEFAULT_MTU
        self._port.flow.sends = self._port.flow.obeys = True
        self.modes = LINK_MODES
        self._fixed = False

    def admitted(self, message: Frames) -> Frames:
        """Return the message without frames beyond the MTU, which the port drops and counts.

        Frames that come back to the port that sent them have not been on the wire.
        """
        longest = self.mtu - FCS_BYTES
        lengths = (max(map(len, train.frames)) for train in message.trains)
        if message.own_qpn >= 0 or all(length <= longest for length in lengths):
            return message
        trains, lost = [], 0
        for train in message.trains:
            fitting = [frame for frame in train.frames if len(frame) <= longest]
            lost += len(train.frames) - len(fitting)
            if fitting:
                trains.append(Train(fitting, train.good))
        self._port.counters.rx.too_long += lost
        return Frames(message.address, trains, message.own_qpn, message.mirrored, message.packets)

    def access(self, register: int, data: bytes, *, write: bool) -> bytes:
        """Read or write a register; `data` is what software sent, with its selectors.

        Returns what it reads then. Raises `Refused` (BAD_PARAM) for garbage.
        """
        layout, handler = self._handlers[register]
        return handler(bytearray(data[: layout.size].ljust(layout.size, b"\0")), write)

    def _mtu(self, data: bytearray, write: bool) -> bytes:
        if write:
            wanted = PMTU.get(data, "admin")
            if not wanted or wanted > MAX_MTU:
                raise Refused(Status.BAD_PARAM, f"an MTU of {wanted} bytes")
            self.mtu = wanted
        for name, value in (("maximum", MAX_MTU), ("admin", self.mtu), ("oper", self.mtu)):
            PMTU.set(data, name, value)
        return bytes(data)

    def _speed(self, data: bytearray, write: bool) -> bytes:
        if PTYS.get(data, "protocol") != ETHERNET_PROTOCOL:
            raise Refused(Status.BAD_PARAM, "link modes of Ethernet only")
        if write:
            wanted = PTYS.get(data, "admin") & LINK_MODES
            if not wanted:
                raise Refused(Status.BAD_PARAM, "none of the link modes")
            self.modes = wanted
            self._fixed = bool(PTYS.get(data, "no_autonegotiation"))
        up = self._port.link_up
        best = 1 << next(mode for mode in _BEST_FIRST if self.modes >> mode & 1)
        state = AUTONEGOTIATION_DONE if up and not self._fixed else AUTONEGOTIATION_OFF
        return bytes(
            PTYS.pack(
                port=1,
                no_autonegotiation=self._fixed,
                can_stop_autonegotiation=1,
                protocol=ETHERNET_PROTOCOL,
                autonegotiation=state,
                capability=LINK_MODES,
                admin=self.modes,
                oper=best if up else 0,
                connector=COPPER,
                partner=LINK_MODES if up and not self._fixed else 0,
            )
        )

    def _state(self, data: bytearray, write: bool) -> bytes:
        if write and PAOS.get(data, "set_admin"):
            wanted = PAOS.get(data, "admin")
            if wanted == PortAdmin.UP:
                self._port.open()
            elif wanted == PortAdmin.DOWN:
                self._port.close()
        opened, up = self._port.tables.open, self._port.link_up
        PAOS.set(data, "admin", PortAdmin.UP if opened else PortAdmin.DOWN)
        PAOS.set(data, "oper", PortAdmin.UP if up else PortAdmin.DOWN)
        return bytes(data)

    def _pause(self, data: bytearray, write: bool) -> bytes:
        flow = self._port.flow
        if write:
            flow.sends, flow.obeys = (
                bool(PFCC.get(data, "pause_tx")),
                bool(PFCC.get(data, "pause_rx")),
            )
        PFCC.set(data, "pause_tx", int(flow.sends))
        PFCC.set(data, "pause_rx", int(flow.obeys))
        return bytes(data)

    def _lanes(self, data: bytearray, write: bool) -> bytes:
        PMLP.set(data, "width", LANES)
        for lane in range(LANES):
            PMLP.set(data, f"lane_{lane}", lane)
        return bytes(data)

    def _counters(self, data: bytearray, write: bool) -> bytes:
        group, priority = PPCNT.get(data, "group"), PPCNT.get(data, "priority")
        read = GROUPS.get(group)
        counters = (
            bytes(PPCNT.size - PPCNT_COUNTERS) if read is None else read(self._port, priority)
        )
        PPCNT.set(data, "counters", counters)
        return bytes(data)

    def _module(self, data: bytearray, write: bool) -> bytes:
        get = MCIA.get
        page, address, length = get(data, "page"), get(data, "address"), get(data, "length")
        good = (
            self._port.cable
            and get(data, "i2c") == I2C_ADDRESS
            and not page
            and length <= MCIA_BYTES
            and address + length <= len(EEPROM)
        )
        MCIA.set(data, "status", 0 if good else NO_MODULE)
        part = EEPROM[address : address + length] if good else b""
        MCIA.set(data, "data", part.ljust(MCIA_BYTES, b"\0"))
        return bytes(data)
