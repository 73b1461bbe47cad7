"""The command queue: a page of entries in guest memory, each with chains of mailboxes.

A doorbell names entries to carry out. An entry is done when its owner bit is clear; with an event
queue that takes such events, one tells about it. Drivers that poll look at the owner bit only, and
others at the event only, so both are given always.

Rules: Linux `core/cmd.c: cmd_work_handler, mlx5_cmd_comp_handler, verify_block_sig`.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Generator, Iterator
from functools import reduce
from operator import xor
from struct import Struct
from time import perf_counter_ns
from typing import Final
from zlib import crc32

from bluebridge.device import pieces
from bluebridge.device.armed_faults import ArmedFault
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact, Value
from bluebridge.device.layout.faults import Effect
from bluebridge.device.layout.mlx5.caps import group_name
from bluebridge.device.layout.mlx5.commands import (
    BLOCK_BYTES,
    ENTRY,
    INLINE_BYTES,
    INPUT,
    MAILBOX,
    OBJECTS,
    OUTPUT,
    PCI_TRANSPORT,
    Delivery,
    Opcode,
    Status,
    name_of,
)
from bluebridge.device.layout.mlx5.contexts import MKC
from bluebridge.device.layout.mlx5.device_commands import ACCESS_REG
from bluebridge.device.layout.mlx5.event_queues import EventType
from bluebridge.device.layout.mlx5.init_segment import LOG_ENTRY_SIZE, LOG_QUEUE_ENTRIES
from bluebridge.device.layout.mlx5.objects import ENTRY as KEY_AT
from bluebridge.device.layout.mlx5.registers import register_name
from bluebridge.device.mlx5.adapter import Adapter, Stage
from bluebridge.device.mlx5.commands.execution import (
    COMPILED_ENTRY,
    HEAD,
    Entry,
    Execution,
    Outcome,
    Undeliverable,
)
from bluebridge.device.mlx5.commands.table import RULES
from bluebridge.device.mlx5.settings.refused import STATUSES, Refused
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.refusal import Refusal
from bluebridge.device.throttle import Throttle

log = logging.getLogger(__name__)

ENTRIES: Final = 1 << LOG_QUEUE_ENTRIES
MOST_BYTES: Final = 4 << 20
"""Bytes of input or output of a command at most: 8,192 mailboxes."""
TURN_NS: Final = 2_000_000
"""Once commands took so long in one turn of the loop, the others wait for the next one."""
_SYNDROME: Final = OUTPUT.field("syndrome").offset
_OUTPUT_AT: Final = ENTRY.field("output").offset
_SIGNATURE: Final = ENTRY.field("signature").offset
_LAST: Final = ENTRY.size - 1
PORTION: Final = 64
"""Mailboxes that are read or written between two turns of others, at most."""
_DONE: Final = object()
_CONTROL: Final = 0x230
"""Offset of what is behind the data of a mailbox."""
_CONTROL_WORDS: Final = Struct(">QIxB")
"""Fields `next`, `number` and `token` of `MAILBOX`."""
_BRIEF: Final = frozenset(opcode for opcode, rule in RULES.items() if rule.brief)
_NUMBERS: Final = re.compile(r"0x[0-9a-f]+|\d+")
_BEFORE: Final = {Stage.ENABLED: "ENABLE_HCA", Stage.INITIALISED: "INIT_HCA"}


class CommandQueue:
    """The entries at an address that software gave, and those that it rang for.

    Commands are carried out one after the other, each in portions between which others have turns.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._bus = adapter.bus
        self._failures = Throttle()
        self._waiting: deque[int] = deque()
        self._running: Iterator[None] | None = None
        self._due = False
        self._late: set[int] = set()  # slots whose command met its fault and may run now
        self.address = 0
        """Of the first entry; 0 until software gave one."""

    def reset(self) -> None:
        """Forget the queue, and commands that were not carried out."""
        self._waiting.clear()
        self._late = set()
        self._running = None
        self.address = 0

    def ring(self, slots: int) -> None:
        """Take a doorbell with a bit for each entry that is to be carried out."""
        if not self.address:
            return
        self._waiting.extend(
            slot for slot in range(ENTRIES) if slots >> slot & 1 and slot not in self._waiting
        )
        if not self._due:
            self._work()

    def _work(self) -> None:
        """Carry commands out until there is none or the time of this turn is used up."""
        self._due = False
        until = perf_counter_ns() + TURN_NS
        while self._running is not None or self._waiting:
            if self._running is None:
                self._running = self._carry_out(self._waiting.popleft())
            running = self._running
            if next(running, _DONE) is _DONE and self._running is running:
                self._running = None
            elif perf_counter_ns() > until:
                break
        if self._running is not None or self._waiting:
            self._due = True
            self._bus.call_next_turn(self._work_on)

    def _work_on(self) -> None:
        """Go on in another turn of the loop, logged as of no work request, whatever ran before."""
        self._bus.resume(0)
        self._work()

    def _carry_out(self, slot: int) -> Iterator[None]:
        """Carry out the command in an entry, give the entry back, and tell about it."""
        at = self.address + (slot << LOG_ENTRY_SIZE)
        try:
            raw = self._load(at, ENTRY.size)
        except DmaError as error:
            self._bus.tell(Fact.COMMAND_LOST, slot=slot, reason=str(error))
            return
        entry = Entry(*COMPILED_ENTRY.unpack(raw))
        opcode, _ = HEAD.unpack(entry.head)
        brief = opcode in _BRIEF and entry.input_length <= INLINE_BYTES + BLOCK_BYTES
        if not brief:
            self._bus.note_dma(Kind.DMA_READ, at, ENTRY.size, raw, What.COMMAND_ENTRY, slot)
        if not entry.owner & 1:
            self._bus.tell(Fact.COMMAND_LOST, slot=slot, reason="the entry is software's")
            return
        fault = self._fault_of(slot, opcode)
        if fault is not None and fault.effect is not Effect.COMMAND_FAILS:
            self._postpone(slot, fault)
            return
        events = self._adapter.eqs.takes(EventType.COMMAND)
        execution = Execution(slot, raw, entry, opcode, perf_counter_ns(), events, brief, fault)
        output = b""
        try:
            yield from self._take_input(execution)
            if not OUTPUT.size // 2 <= entry.output_length <= MOST_BYTES:
                reason = f"{entry.output_length} bytes of output"
                raise Undeliverable(Delivery.OUT_LENGTH, reason)
            outcome = yield from self._attempt(execution)
            output = _output_of(entry.output_length, outcome)
            if outcome.status is Status.OK:
                yield from self._write_output(execution, output)
        except Undeliverable as error:
            outcome, output = Outcome(delivery=error.delivery, reason=error.reason), b""
        self._give_back(execution, output, outcome.delivery)
        self._tell(execution, outcome, output)
        if execution.events and self._adapter.eqs.takes(EventType.COMMAND):
            self._adapter.eqs.post_async(EventType.COMMAND, (1 << slot).to_bytes(4, "big"))

    def _fault_of(self, slot: int, opcode: int) -> ArmedFault | None:
        """Return the fault that a command meets, but for one that met it before."""
        if slot in self._late:
            self._late.remove(slot)
            return None
        return self._adapter.faults.command(opcode, name_of)

    def _postpone(self, slot: int, fault: ArmedFault) -> None:
        """Leave a command in its entry for a time, or until its fault is cleared."""
        late, bus = self._late, self._bus

        def again() -> None:
            if self._late is late and slot not in late:  # else the queue is another one
                late.add(slot)
                self.ring(1 << slot)

        if fault.effect is Effect.COMMAND_LATE:
            bus.call_later(fault.seconds, again)
        else:
            self._adapter.faults.keep(fault, again)

    def _attempt(self, execution: Execution) -> Generator[None, None, Outcome]:
        """Do what a command says, in portions, and return how it ended."""
        fault = execution.fault
        if fault is not None:
            status = Status(fault.status)
            return Outcome(status=status, reason=fault.reason, syndrome=syndrome_of(fault.reason))
        try:
            result = self._begin(execution.data)
            if isinstance(result, bytes):
                output = result
            else:
                output = b""
                for step in result:
                    output = step
                    yield
            self._adapter.users.note(execution.data, output)
            return Outcome(output)
        except Refused as refused:
            syndrome = refused.syndrome or syndrome_of(refused.reason)
            return Outcome(status=refused.status, reason=refused.reason, syndrome=syndrome)
        except Refusal as refusal:
            status = STATUSES[refusal.reason]
            return Outcome(status=status, reason=refusal.text, syndrome=syndrome_of(refusal.text))
        except DmaError as error:
            syndrome = syndrome_of("no guest memory")
            return Outcome(status=Status.BAD_PARAM, reason=str(error), syndrome=syndrome)
        except Exception as error:
            if self._failures.admits():
                name, count = self._adapter.config.name, self._failures.count
                log.exception("%s: a command failed (%d so far)", name, count)
            return Outcome(status=Status.INTERNAL_ERR, reason=repr(error), syndrome=1)

    def _begin(self, data: bytes) -> bytes | Iterator[bytes]:
        """Return the output of a command, or what makes it; raises `Refused`."""
        rule = RULES.get(INPUT.get(data, "opcode"))
        if rule is None:
            raise Refused(Status.BAD_OP, "unknown opcode")
        if self._adapter.stage < rule.needs:
            raise Refused(Status.BAD_SYS_STATE, f"before {_BEFORE[rule.needs]}")
        if len(data) < rule.least:
            raise Refused(Status.BAD_INP_LEN, f"{len(data)} bytes of input of {rule.least}")
        self._adapter.users.admit(data)
        return rule.handler(self._adapter, data) or b""

    # -- entries and mailboxes ----------------------------------------------------------------

    def _take_input(self, execution: Execution) -> Iterator[None]:
        """Read the whole input; raises `Undeliverable`."""
        entry = execution.entry
        if entry.type != PCI_TRANSPORT:
            raise Undeliverable(Delivery.DESCRIPTOR, f"type {entry.type}")
        length = entry.input_length
        if not INPUT.size <= length <= MOST_BYTES:
            raise Undeliverable(Delivery.IN_LENGTH, f"{length} bytes of input")
        execution.data = entry.head
        address, parts = entry.input_mailbox, [entry.head]
        for number, at in enumerate(range(INLINE_BYTES, length, BLOCK_BYTES)):
            if number % PORTION == PORTION - 1:
                yield
            try:
                block = self._load(address, MAILBOX.size)
            except DmaError as error:
                raise Undeliverable(Delivery.IN_POINTER, str(error)) from error
            if not execution.brief:
                opcode, kind = execution.opcode, Kind.DMA_READ
                self._bus.note_dma(kind, address, MAILBOX.size, block, What.MAILBOX_IN, opcode)
            address = _following(block[_CONTROL:], number, entry.token)
            parts.append(block[: min(length - at, BLOCK_BYTES)])
        execution.data = b"".join(parts)

    def _load(self, address: int, length: int) -> bytes:
        """Return a copy of guest memory, without a record; raises `DmaError`."""
        return b"".join(self._bus.views([(address, length)]))

    def _write_output(self, execution: Execution, output: bytes) -> Iterator[None]:
        """Store what is behind the bytes in the entry into the chain; raises `Undeliverable`."""
        address, token = execution.entry.output_mailbox, execution.entry.token
        opcode = execution.opcode
        for number, at in enumerate(range(INLINE_BYTES, len(output), BLOCK_BYTES)):
            if number % PORTION == PORTION - 1:
                yield
            part = output[at : at + BLOCK_BYTES]
            try:
                control = self._bus.read(
                    address + _CONTROL, MAILBOX.size - _CONTROL, What.MAILBOX_OUT, opcode
                )
                following = _following(control, number, token)
                self._bus.write(address, part, What.MAILBOX_OUT, opcode)
            except DmaError as error:
                raise Undeliverable(Delivery.OUT_POINTER, str(error)) from error
            address = following

    def _give_back(self, execution: Execution, output: bytes, delivery: Delivery) -> None:
        """Store the end of an entry, whose last byte says that it is done."""
        done = bytearray(execution.raw)
        done[_OUTPUT_AT : _OUTPUT_AT + INLINE_BYTES] = output[:INLINE_BYTES].ljust(
            INLINE_BYTES, b"\0"
        )
        done[_LAST] = delivery << 1
        done[_SIGNATURE] = 0
        done[_SIGNATURE] = ~reduce(xor, done) & 0xFF
        at, slot = self.address + (execution.slot << LOG_ENTRY_SIZE), execution.slot
        for start, part in ((_OUTPUT_AT, done[_OUTPUT_AT:_LAST]), (_LAST, done[_LAST:])):
            try:
                if execution.brief:
                    pieces.copy(self._bus.views([(at + start, len(part))]), [bytes(part)])
                else:
                    self._bus.write(at + start, part, What.COMMAND_ENTRY, slot)
            except DmaError as error:
                self._bus.tell(Fact.COMMAND_LOST, slot=slot, reason=str(error))
                return

    def _tell(self, execution: Execution, outcome: Outcome, output: bytes) -> None:
        data, delivery = execution.data or execution.entry.head, outcome.delivery
        opcode, op_mod = HEAD.unpack_from(data)
        word, number = _object(opcode, data, output, outcome.status)
        told: dict[str, Value] = {
            "name": name_of(opcode),
            "op_mod": op_mod,
            "slot": execution.slot,
            "word": word,
            "number": number,
            "status": outcome.status.name if delivery is Delivery.OK else f"not {delivery.name}",
            "syndrome": outcome.syndrome,
            "us": (perf_counter_ns() - execution.begin) // 1000,
            "reason": outcome.reason,
        }
        if execution.brief:
            self._bus.tell(Fact.KEY_COMMAND, context=MKC.words(data, KEY_AT), **told)
        else:
            self._bus.tell(Fact.FIRMWARE_COMMAND, **told)


def _output_of(length: int, outcome: Outcome) -> bytes:
    """Return the output of a command, of the length that software wants."""
    output = bytearray(max(INLINE_BYTES, length))
    given = outcome.output[: len(output)]
    output[: len(given)] = given
    output[0] = outcome.status
    output[_SYNDROME : _SYNDROME + 4] = outcome.syndrome.to_bytes(4, "big")
    return bytes(output)


def _following(control: bytes, number: int, token: int) -> int:
    """Return the address of the mailbox behind that of a number, by what follows its data.

    Raises `Undeliverable` unless it is the one of this number of its command.
    """
    following, found, own = _CONTROL_WORDS.unpack_from(control)
    if own != token:
        raise Undeliverable(Delivery.TOKEN, f"token {own:#x} in a mailbox")
    if found != number:
        raise Undeliverable(Delivery.BLOCK_NUMBER, f"mailbox {found} in place of {number}")
    return int(following)


def _object(opcode: int, data: bytes, output: bytes, status: Status) -> tuple[str, int]:
    """Return a word for the object that a command is about, such as `eqn`, and its number."""
    if opcode == Opcode.ACCESS_REG:
        kind = "read" if ACCESS_REG.get(data, "op_mod") else "write"
        register = ACCESS_REG.get(data, "register")
        return f"{kind} {register_name(register)}", register
    if opcode in (Opcode.QUERY_HCA_CAP, Opcode.SET_HCA_CAP):
        group, current = divmod(INPUT.get(data, "op_mod"), 2)
        kind = "current" if current else "most" if opcode == Opcode.QUERY_HCA_CAP else "set"
        return f"{kind} {group_name(group)}", group
    place = OBJECTS.get(opcode)
    source = output if place is not None and place.made else data
    if place is None or len(source) < place.offset + 4 or (place.made and status is not Status.OK):
        return "", 0
    return place.word, place.number(source)


def syndrome_of(reason: str) -> int:
    """Return 32 bits that are the same for reasons which differ in numbers only."""
    return crc32(_NUMBERS.sub("", reason).encode())
