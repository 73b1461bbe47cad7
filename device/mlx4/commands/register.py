"""The host command register, which takes a command when GO is written and carries it out.

Most commands are complete at once; GO stays set while one that takes long goes on in turns. One
that a fault delays leaves the register at once if its end is told by an event: a driver waits 60 s
for that, but resets the adapter when GO is still set 10 s after it wanted to post another.

Rules: Linux `mlx4/cmd.c: mlx4_cmd_post, cmd_pending, mlx4_cmd_poll, mlx4_cmd_wait`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.faults import Effect
from bluebridge.device.layout.mlx4.bar0 import (
    CATAS,
    CATAS_CODE_INJECTED,
    CATAS_DWORDS,
    CATAS_LETTERS,
    CATAS_OFFSET,
    HCR,
    HCR_BASE,
    HCR_EVENT,
    HCR_GO,
)
from bluebridge.device.layout.mlx4.commands import MAILBOX_SIZE, Status, name_of
from bluebridge.device.layout.mlx4.eqe import CMD_EQE, DATA_OFFSET, EventType
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands import (
    firmware_commands,
    mad_commands,
    object_commands,
    port_commands,
    qp_commands,
    steering_commands,
)
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.mlx4.words import STATUSES
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.refusal import Refusal
from bluebridge.device.throttle import Throttle

_SIZE: Final = CATAS_DWORDS * 4

log = logging.getLogger(__name__)

CONTROL = 0x18
RULES: dict[int, Rule] = {
    **firmware_commands.RULES,
    **object_commands.RULES,
    **qp_commands.RULES,
    **port_commands.RULES,
    **mad_commands.RULES,
    **steering_commands.RULES,
}
_DONE = object()


class Health:
    """The state of internal errors (`failed`), and the contents of the error buffer."""

    def __init__(self) -> None:
        self.failed = False
        self._buffer = bytes(_SIZE)

    def reset(self) -> None:
        """Clear the error and the buffer."""
        self.failed = False
        self._buffer = bytes(_SIZE)

    def fail(self, reason: str) -> None:
        """Note an error and fill the buffer: a code, and the reason as far as there is room."""
        text = reason.encode("ascii", "replace")
        text = text[:CATAS_LETTERS].ljust(CATAS_LETTERS, b"\0")
        self._buffer = bytes(CATAS.pack(code=CATAS_CODE_INJECTED, text=text))
        self.failed = True

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of BAR0 at `offset`: of the buffer, zeros elsewhere."""
        start = offset - CATAS_OFFSET
        if start >= 0 and start + length <= _SIZE:
            return self._buffer[start : start + length]
        return bytes(length)


@dataclass(slots=True, eq=False)
class Execution:
    """A command under way since `begin` (in ns), with its `steps` if it is done in portions."""

    command: Command
    begin: int
    steps: Iterator[None] | None = None
    change: Callable[[bytes], bytes] | None = None
    """What a fault makes of the answer."""


class CommandRegister:
    """The seven words at HCR_BASE and the dispatcher of the commands in them."""

    def __init__(self, adapter: Adapter, health: Health) -> None:
        self._adapter = adapter
        self._health = health
        self._words = bytearray(HCR.size)
        self._failures = Throttle()
        self._execution: Execution | None = None
        self._delayed: list[Execution] = []
        """Commands that have left the register and are not complete."""

    def reset(self) -> None:
        """Set all words to zero, the toggle too: the driver's first command carries 1."""
        self._execution = None
        self._delayed.clear()
        self._words[:] = bytes(HCR.size)

    def covers(self, offset: int, length: int) -> bool:
        """Return True if an access of BAR0 lies inside the register."""
        return offset >= HCR_BASE and offset + length <= HCR_BASE + HCR.size

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the register as they are now."""
        return bytes(self._words[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        """Store bytes, which are ignored during a command; a control word with GO starts one.

        The driver sees GO clear and its own toggle when it is done. After an internal error
        GO stays, as the command is not taken.
        """
        if self._execution is not None:
            return
        self._words[offset : offset + len(data)] = data
        if self._health.failed:
            return
        # Drivers write the control word last, when all others are in place.
        if offset + len(data) == HCR.size and self._word(CONTROL) & HCR_GO:
            self._execution = Execution(self._command(), perf_counter_ns())
            self._begin(self._execution)

    def _begin(self, execution: Execution) -> None:
        """Carry out a command, unless it meets an armed fault."""
        faults, command = self._adapter.faults, execution.command
        fault = faults.command(command.opcode, name_of)
        if fault is None:
            self._carry_on(execution)
        elif fault.effect is Effect.COMMAND_FAILS:
            self._end(execution, Status(fault.status), fault.reason, command.out_param)
        elif fault.effect is Effect.COMMAND_WRONG:
            execution.change = fault.change
            self._carry_on(execution)
        else:
            if command.event:
                # Clear GO before the command is complete, so that the register takes others
                # meanwhile.
                self._execution = None
                self._delayed.append(execution)
                control = self._word(CONTROL) & ~HCR_GO
                self._words[CONTROL:] = control.to_bytes(4, "big")
            if fault.effect is Effect.COMMAND_LATE:
                self._adapter.bus.call_later(fault.seconds, lambda: self._continue(execution))
            else:
                faults.keep(fault, lambda: self._continue(execution))

    def _word(self, offset: int) -> int:
        return int.from_bytes(self._words[offset : offset + 4], "big")

    def _command(self) -> Command:
        control = self._word(CONTROL)
        return Command(
            opcode=control & 0xFFF,
            op_modifier=control >> 12 & 0xF,
            in_modifier=self._word(0x08),
            in_param=int.from_bytes(self._words[0x00:0x08], "big"),
            out_param=int.from_bytes(self._words[0x0C:0x14], "big"),
            token=self._word(0x14) >> 16,
            event=bool(control & HCR_EVENT),
            bus=self._adapter.bus,
        )

    def _carry_on(self, execution: Execution) -> None:
        """Carry out a command or its next portion, unless a reset or a failure ended it."""
        alive = execution is self._execution or execution in self._delayed
        if not alive or self._health.failed:
            return
        command, reason = execution.command, ""
        immediate, status = command.out_param, Status.OK
        try:
            output = 0 if execution.steps is not None else self._run(execution)
            if execution.steps is not None and next(execution.steps, _DONE) is not _DONE:
                self._adapter.bus.call_next_turn(lambda: self._continue(execution))
                return
            immediate = output
        except CommandError as error:
            status, reason = error.status, error.reason
        except Refusal as refusal:
            status, reason = STATUSES[refusal.reason], refusal.text
        except Exception as error:
            if self._failures.admits():
                name, failures = self._adapter.config.name, self._failures.count
                log.exception("%s: command %s (%d so far)", name, name_of(command.opcode), failures)
            status, reason = Status.INTERNAL_ERR, repr(error)
        self._end(execution, status, reason, immediate)

    def _end(self, execution: Execution, status: Status, reason: str, immediate: int) -> None:
        command = execution.command
        self._note(command, status, reason, (perf_counter_ns() - execution.begin) // 1000)
        if execution in self._delayed:
            self._delayed.remove(execution)
        else:
            self._execution = None
            self._complete(status, immediate)
        if command.event:
            event = CMD_EQE.pack(token=command.token, status=status, out_param=immediate)
            self._adapter.eqs.post_async(EventType.CMD, bytes(event[DATA_OFFSET:-4]))

    def _continue(self, execution: Execution) -> None:
        """Carry out the next portion, logged as of no work request, whatever ran before."""
        self._adapter.bus.resume(0)
        self._carry_on(execution)

    def _complete(self, status: Status, immediate: int) -> None:
        control = self._word(CONTROL) & 0x00FFFFFF & ~HCR_GO | status << 24
        self._words[0x0C:0x14] = immediate.to_bytes(8, "big")
        self._words[CONTROL:] = control.to_bytes(4, "big")

    def _run(self, execution: Execution) -> int:
        """Carry out a command or find its `steps`; returns the value of the output parameter."""
        command = execution.command
        rule = RULES.get(command.opcode)
        if rule is None:
            raise CommandError(Status.BAD_OP, "unknown opcode")
        if not self._adapter.parameters.initialised and not rule.before_init:
            if rule.closing:
                return 0
            raise CommandError(Status.BAD_SYS_STATE, "INIT_HCA comes first")
        result = rule.handler(self._adapter, command)
        if result is None:
            return 0
        if isinstance(result, int):
            return result
        if isinstance(result, bytes):
            data = execution.change(result) if execution.change else result
            try:
                self._adapter.bus.write(
                    command.out_param, data[:MAILBOX_SIZE], What.MAILBOX_OUT, command.opcode
                )
            except DmaError as error:
                raise CommandError(Status.BAD_PARAM, f"output mailbox: {error}") from error
            return command.out_param
        execution.steps = result
        return 0

    def _note(self, command: Command, status: Status, reason: str, microseconds: int) -> None:
        self._adapter.bus.tell(
            Fact.COMMAND,
            name=name_of(command.opcode),
            op_mod=command.op_modifier,
            in_mod=command.in_modifier,
            in_param=command.in_param,
            status=status.name,
            us=microseconds,
            reason=reason,
        )
