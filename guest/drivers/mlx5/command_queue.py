"""Firmware commands: an entry of the command queue, with chains of mailboxes (core/cmd.c)."""

from __future__ import annotations

import threading
import time
from typing import Final

from bluebridge.device.layout.mlx5 import init_segment
from bluebridge.device.layout.mlx5.commands import (
    BLOCK_BYTES,
    ENTRY,
    INLINE_BYTES,
    INPUT,
    MAILBOX,
    MAILBOX_ALIGNMENT,
    OUTPUT,
    PCI_TRANSPORT,
    Delivery,
    Opcode,
    Status,
    name_of,
)
from bluebridge.guest.bus.interface import Bus, DmaMemory
from bluebridge.guest.drivers.common.health import HcaError, HcaHealth
from bluebridge.guest.errors import DeviceLost, VerbsError

TIMEOUT_SECONDS: Final = 60.0
_QUEUE_BYTES: Final = 4096
_OWNER: Final = 0x3F
_TEAR_DOWN: Final = frozenset(
    opcode
    for opcode in Opcode
    if opcode.name.startswith(("DESTROY_", "DEALLOC_", "TEARDOWN_", "DISABLE_", "DELETE_", "TO"))
)
"""The commands that only free something; a lost device needs none of them."""


class CommandError(VerbsError):
    """A firmware command came back with a status other than OK, or was not delivered."""

    def __init__(self, opcode: int, status: int, syndrome: int) -> None:
        try:
            text = Status(status).name
        except ValueError:
            text = "unknown status"
        super().__init__(
            f"command {name_of(opcode)} failed: status {status:#04x} ({text}), "
            f"syndrome {syndrome:#010x}"
        )
        self.opcode = opcode
        self.status = status


class CommandQueue:
    """The command queue in polling mode: its first entry, one command at a time."""

    def __init__(self, bus: Bus, health: HcaHealth) -> None:
        self._bus = bus
        self._health = health
        self._lock = threading.Lock()
        self._token = 0
        self._queue = bus.allocate(_QUEUE_BYTES)
        self._inputs: list[DmaMemory] = []
        self._outputs: list[DmaMemory] = []
        bus.write32(0, init_segment.QUEUE_HIGH, self._queue.address >> 32)
        bus.write32(0, init_segment.QUEUE_LOW, self._queue.address & 0xFFFFFFFF)

    def run(
        self,
        opcode: int,
        data: bytes | bytearray = b"",
        *,
        number: int = 0,
        op_mod: int = 0,
        output: int = INLINE_BYTES,
    ) -> bytes:
        """Execute a command by its whole input, and return its output of `output` bytes.

        Opcode, `op_mod` and the `number` of an object are put into the input. Raises
        `CommandError`, `HcaError` when the device does not answer, `DeviceLost` when it is gone;
        but then commands that only tear down succeed, so that their callers can give back what
        they hold (core/cmd.c: mlx5_internal_err_ret_value).
        """
        given = bytearray(data.ljust(INLINE_BYTES, b"\0"))
        INPUT.set(given, "opcode", opcode)
        if op_mod:
            INPUT.set(given, "op_mod", op_mod)
        if number:
            INPUT.set(given, "number", number)
        try:
            with self._lock:
                if self._health.lost:
                    raise self._health.loss()
                return self._execute(opcode, given, output)
        except DeviceLost:
            if opcode not in _TEAR_DOWN:
                raise
            return bytes(output)

    def make(self, opcode: int, data: bytes | bytearray = b"") -> int:
        """Execute a command that makes an object, and return its number."""
        return OUTPUT.get(self.run(opcode, data), "number")

    def close(self) -> None:
        """Free queue and mailboxes; no command may follow."""
        for memory in (self._queue, *self._inputs, *self._outputs):
            memory.free()

    def _execute(self, opcode: int, given: bytearray, output: int) -> bytes:
        self._token = self._token % 255 + 1
        inputs = self._chain(self._inputs, len(given))
        outputs = self._chain(self._outputs, output)
        for index, memory in enumerate(inputs):
            start = INLINE_BYTES + index * BLOCK_BYTES
            part = given[start : start + BLOCK_BYTES]
            memory.view[: len(part)] = part
        entry = ENTRY.pack(
            type=PCI_TRANSPORT, input_length=len(given), output_length=output, token=self._token,
            input=bytes(given[:INLINE_BYTES]), owner=1,
            input_mailbox=inputs[0].address if inputs else 0,
            output_mailbox=outputs[0].address if outputs else 0,
        )  # fmt: skip
        self._queue.view[:_OWNER] = entry[:_OWNER]
        self._queue.view[_OWNER] = entry[_OWNER]
        self._bus.write32(0, init_segment.DOORBELL, 1)
        self._wait(opcode)
        done = bytes(self._queue.view[: ENTRY.size])
        if delivery := ENTRY.get(done, "delivery"):
            raise HcaError(f"command {name_of(opcode)}: delivery {Delivery(delivery).name}")
        head = ENTRY.get_raw(done, "output")
        if status := OUTPUT.get(head, "status"):
            raise CommandError(opcode, status, OUTPUT.get(head, "syndrome"))
        answer = head + b"".join(bytes(memory.view[:BLOCK_BYTES]) for memory in outputs)
        return answer[: max(output, INLINE_BYTES)]

    def _chain(self, pool: list[DmaMemory], length: int) -> list[DmaMemory]:
        """Return the mailboxes of `length` bytes, linked and with the present token."""
        count = max(0, -(-(length - INLINE_BYTES) // BLOCK_BYTES))
        while len(pool) < count:
            pool.append(self._bus.allocate(MAILBOX.size, MAILBOX_ALIGNMENT))
        for number in range(count):
            following = pool[number + 1].address if number + 1 < count else 0
            block = MAILBOX.pack(next=following, number=number, token=self._token)
            pool[number].view[:] = block
        return pool[:count]

    def _wait(self, opcode: int) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        pause = 0.0
        view = self._queue.view
        while view[_OWNER] & 1:
            self._health.check()
            if time.monotonic() > deadline:
                raise HcaError(f"command {name_of(opcode)} timed out: hardware keeps the entry")
            time.sleep(pause)
            pause = min(0.01, pause + 0.0005)
