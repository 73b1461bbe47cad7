"""Firmware commands through the host command register (Linux `core/cmd.c`)."""

from __future__ import annotations

import threading
import time

from bluebridge.device.layout.mlx4.bar0 import HCR, HCR_EVENT, HCR_GO, HCR_TOGGLE
from bluebridge.device.layout.mlx4.commands import (
    MAILBOX_SIZE,
    MODIFIER_UNMAP_EQ,
    Opcode,
    Status,
    name_of,
)
from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.drivers.common.health import ALL_ONES, HcaError, HcaHealth
from bluebridge.guest.errors import DeviceLost, VerbsError

TIMEOUT_SECONDS = 60.0
POLL_TOKEN = 0xFFFF
_HCR = [HCR.at(register.name) for register in HCR.registers]
_TEAR_DOWN = frozenset(
    (
        Opcode.CLOSE_HCA,
        Opcode.CLOSE_PORT,
        Opcode.CONF_SPECIAL_QP,
        Opcode.HW2SW_CQ,
        Opcode.HW2SW_EQ,
        Opcode.HW2SW_MPT,
        Opcode.HW2SW_SRQ,
        Opcode.TOERR_QP,
        Opcode.TORST_QP,
        Opcode.UNMAP_FA,
        Opcode.UNMAP_ICM,
        Opcode.UNMAP_ICM_AUX,
    )
)
"""The commands that only free something; a lost device needs none of them."""
_OUT_HI, _OUT_LO, _CONTROL = HCR.at("out_param_hi"), HCR.at("out_param_lo"), HCR.at("control")


class FirmwareError(VerbsError):
    """A firmware command came back with a status other than OK."""

    def __init__(self, opcode: int, status: int) -> None:
        try:
            text = Status(status).name
        except ValueError:
            text = "unknown status"
        super().__init__(f"command {name_of(opcode)} failed: status {status:#04x} ({text})")
        self.opcode = opcode
        self.status = status


class FirmwareCommands:
    """The command interface in polling mode, one command at a time."""

    def __init__(self, bus: Bus, health: HcaHealth) -> None:
        self._bus = bus
        self._health = health
        self._toggle = 1
        self._idle = False  # whether the register is known to be free: a read costs a round trip
        self._lock = threading.Lock()
        self._input = bus.allocate(MAILBOX_SIZE)
        self._output = bus.allocate(MAILBOX_SIZE)

    def run(
        self,
        opcode: int,
        modifier: int = 0,
        op_modifier: int = 0,
        *,
        param: int = 0,
        data: bytes | bytearray | None = None,
    ) -> None:
        """Execute a command.

        `data` goes into the input mailbox and its address replaces `param`. Raises
        `FirmwareError` on a bad status, `HcaError` when the device does not answer, `DeviceLost`
        when it is gone; but then commands that only tear down succeed, so that their callers
        can give back what they hold (core/cmd.c: mlx4_internal_err_ret_value). So they do where
        the device was reset since its start, and has nothing of it any more.
        """
        try:
            with self._lock:
                if data is not None:
                    self._fill(data)
                    param = self._input.address
                self._execute(opcode, modifier, op_modifier, param, 0)
        except (DeviceLost, FirmwareError) as error:
            unmaps = opcode == Opcode.MAP_EQ and modifier & MODIFIER_UNMAP_EQ
            tears_down = opcode in _TEAR_DOWN or unmaps
            gone = isinstance(error, DeviceLost) or error.status == Status.BAD_SYS_STATE
            if not (tears_down and gone):
                raise

    def immediate(self, opcode: int, modifier: int = 0, *, param: int = 0) -> int:
        """Execute a command and return its 64-bit result, which stands in the command register."""
        with self._lock:
            self._execute(opcode, modifier, 0, param, 0)
            return self._bus.read32(0, _OUT_HI) << 32 | self._bus.read32(0, _OUT_LO)

    def query(
        self,
        opcode: int,
        modifier: int = 0,
        op_modifier: int = 0,
        *,
        data: bytes | bytearray | None = None,
    ) -> bytes:
        """Execute a command that fills an output mailbox; returns its 4096 bytes."""
        with self._lock:
            if data is not None:
                self._fill(data)
            param = self._input.address if data is not None else 0
            self._output.view[:] = bytes(MAILBOX_SIZE)
            self._execute(opcode, modifier, op_modifier, param, self._output.address)
            return bytes(self._output.view)

    def post_event(self, opcode: int, modifier: int, token: int) -> None:
        """Start a command without mailboxes whose completion comes as an event with `token`."""
        with self._lock:
            self._post(opcode, modifier, 0, 0, 0, token, HCR_EVENT)
            self._idle = False

    def close(self) -> None:
        """Free the mailboxes; no command may follow."""
        self._input.free()
        self._output.free()

    def _fill(self, data: bytes | bytearray) -> None:
        self._input.view[:] = bytes(data) + bytes(MAILBOX_SIZE - len(data))

    def _execute(
        self, opcode: int, modifier: int, op_modifier: int, param: int, out_param: int
    ) -> None:
        self._post(opcode, modifier, op_modifier, param, out_param, POLL_TOKEN, 0)
        control = self._wait(opcode)
        if control >> 24:
            raise FirmwareError(opcode, control >> 24)

    def _post(
        self,
        opcode: int,
        modifier: int,
        op_modifier: int,
        param: int,
        out_param: int,
        token: int,
        flags: int,
    ) -> None:
        if self._health.lost:
            raise self._health.loss()
        if not self._idle:
            self._wait(opcode)
        self._idle = False
        toggle = HCR_TOGGLE if self._toggle else 0
        self._toggle ^= 1
        values = (
            param >> 32,
            param & 0xFFFFFFFF,
            modifier,
            out_param >> 32,
            out_param & 0xFFFFFFFF,
            token << 16,
            HCR_GO | toggle | flags | op_modifier << 12 | opcode,
        )
        for offset, value in zip(_HCR, values, strict=True):
            self._bus.write32(0, offset, value)

    def _wait(self, opcode: int) -> int:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        pause = 0.0
        while True:
            control = self._bus.read32(0, _CONTROL)
            if control == ALL_ONES:
                raise self._health.loss()
            if not control & HCR_GO:
                self._idle = True
                return control
            if time.monotonic() > deadline:
                raise HcaError(f"command {name_of(opcode)} timed out: the go bit stays set")
            time.sleep(pause)
            pause = min(0.01, pause + 0.0005)
