"""Follows what NTRDMA's ports tell each other: scratchpads, blocks, commands and responses.

All of it is what guests wrote, so nothing is believed that cannot be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bluebridge.device.buslog.ntrdma.entries import MOST_ENTRIES, entries, segments
from bluebridge.device.buslog.ntrdma.memory import Area, Memory, Queue, Region, Use
from bluebridge.device.buslog.ntrdma.stores import Store
from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ntb.models import BY_LOG_SUFFIX
from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma import port
from bluebridge.device.layout.ntrdma.commands import CommandCode
from bluebridge.device.layout.ntrdma.port import CONF_BLOCK, INIT_BLOCK, PEER_INFO, Spad
from bluebridge.device.layout.ntrdma.work import (
    COMPLETION,
    PIECE_SIZE,
    RECV_ENTRY,
    SEND_ENTRY,
)

MOST_QUEUES = 1 << 12
MOST_PIECES = 1 << 10
WORD = 4
FRAME_LENGTH = 8
"""Bytes of an Ethernet completion: how long the frame is."""
_SPADS = {
    suffix: {
        block.at("spad", index): index
        for block in model.blocks
        if block.name == "PEER_SPAD"
        for index in Spad
    }
    for suffix, model in BY_LOG_SUFFIX.items()
}
"""The peer's scratchpads that NTRDMA uses, by the family of the bridge and their register."""


class Place(NamedTuple):
    """Where a store goes: what it is for, and what it belongs to."""

    use: Use
    area: Area | None = None
    region: Region | None = None
    offset: int = 0
    """In the region, or in the area."""

    @property
    def queue(self) -> Queue | None:
        """The queue pair of a ring or an index."""
        return None if self.area is None else self.area.queue


class Ports:
    """What is known of each machine; `observe` stores in order."""

    def __init__(self) -> None:
        self._memories: dict[str, Memory] = {}
        self._handlers: dict[int, Callable[[Memory, bytes], None]] = {
            CommandCode.MR_CREATE: _create_region,
            CommandCode.MR_APPEND: _append_region,
            CommandCode.MR_DELETE: _delete_region,
            CommandCode.QP_CREATE: _create_queue,
            CommandCode.QP_MODIFY: _modify_queue,
        }

    def memory(self, machine: str) -> Memory:
        """That of a machine, of which nothing may be known."""
        found = self._memories.get(machine)
        if found is None:
            found = self._memories[machine] = Memory(machine)
        return found

    @property
    def unseen(self) -> bool:
        """Whether machines speak NTRDMA, but none of their stores is in the log."""
        memories = self._memories.values()
        return any(each.speaks for each in memories) and not any(each.known for each in memories)

    def place(self, store: Store) -> Place:
        """What a store is for, before it is observed."""
        if store.is_message:
            return Place(Use.MESSAGE)
        return self.at(store.receiver, store.event.address)

    def at(self, machine: str, address: int) -> Place:
        """What an address of a machine's memory is for."""
        memory = self.memory(machine)
        area = memory.area(address)
        if area is not None:
            return Place(area.use, area, None, address - area.start)
        found = memory.region(address)
        if found is not None:
            return Place(Use.DATA, None, *found)
        return Place(Use.OTHER)

    # -- scratchpads ----------------------------------------------------------------------------

    def scratchpad(self, event: Event, machine: str, kind: str) -> int | None:
        """Which of the peer's scratchpads a register write is to, if it is one of NTRDMA's."""
        index = _SPADS.get(kind, {}).get(event.address) if event.bar == 0 else None
        if index is None or len(event.data) != WORD:
            return None
        memory, value = self.memory(machine), int.from_bytes(event.data, "little")
        if index == Spad.VERSION:
            get = port.VERSIONS.get
            memory.speaks = get(event.data, "lowest") <= port.VERSION <= get(event.data, "highest")
        if not memory.speaks:
            return None
        if index == Spad.ADDRESS_LOW:
            memory.block = memory.block >> 32 << 32 | value
        elif index == Spad.ADDRESS_HIGH:
            memory.block = value << 32 | memory.block & 0xFFFFFFFF
            memory.claim(Area(memory.block, 1, PEER_INFO.size, Use.BLOCK))
        return index

    # -- stores ---------------------------------------------------------------------------------

    def observe(self, store: Store, place: Place) -> None:
        """Learn from a store whose place was looked for before."""
        sender, receiver = self.memory(store.sender), self.memory(store.receiver)
        area, data = place.area, store.event.data
        if area is None:
            return
        if place.use is Use.BLOCK:
            self._block(sender, receiver, place.offset, data)
        elif place.use is Use.COMMANDS:
            self._commands(sender, receiver, area, store.event)
        elif place.use is Use.RESPONSES:
            self._responses(sender, receiver, area, store.event)
        elif area.ring and len(data) == WORD:
            area.last = int.from_bytes(data, "little")

    def _block(self, sender: Memory, receiver: Memory, offset: int, data: bytes) -> None:
        """A part of the sender's block, which tells of the sender's memory."""
        info = receiver.info
        end = min(offset + len(data), len(info))
        info[offset:end] = data[: end - offset]
        get = PEER_INFO.get
        tagged = get(info, "version_tag") == get(info, "init_tag") == port.VERSION_TAG
        is_ping = offset == PEER_INFO.field("ping").offset and end - offset <= WORD
        if not tagged or is_ping:
            return
        if offset < INIT_BLOCK.stop:
            _take_init(sender, info)
        if end > CONF_BLOCK.start and get(info, "conf_tag") == port.VERSION_TAG:
            _take_conf(sender, info)

    def _commands(self, sender: Memory, receiver: Memory, ring: Area, event: Event) -> None:
        for slot, command in entries(ring, event.address, event.length, event.data):
            if command is None:
                receiver.commands.pop(slot, None)
                continue
            receiver.commands[slot] = command
            handler = self._handlers.get(layout.RESPONSE.get(command, "op"))
            if handler is not None:
                handler(sender, command)

    def _responses(self, sender: Memory, receiver: Memory, ring: Area, event: Event) -> None:
        for slot, response in entries(ring, event.address, event.length, event.data):
            command = sender.commands.get(slot)
            if response is None or command is None:
                continue
            get = layout.KEYED_RESPONSE.get
            op, key = get(response, "op"), get(response, "key")
            asked = get(command, "op"), get(command, "key")
            queue = receiver.queues.get(key)
            if asked != (op, key) or get(response, "status") != layout.OK or queue is None:
                continue
            if op == CommandCode.QP_CREATE:
                _twin(sender, queue, response)
            elif op == CommandCode.QP_DELETE:
                del receiver.queues[key]
                for memory in (sender, receiver):
                    memory.release(queue)


def _index(address: int, use: Use, ring: int, queue: Queue | None = None) -> Area:
    return Area(address, WORD, 1, use, queue, ring)


# -- blocks ---------------------------------------------------------------------------------------


def _take_init(sender: Memory, info: bytearray) -> None:
    value = _reader(PEER_INFO, info)
    sender.restart()
    sender.message = value("msi_address"), value("msi_data")
    sender.bells_at = value("bells")
    sender.claim(Area(sender.bells_at, WORD, min(value("bell_count"), port.DOORBELLS), Use.BELL))
    capacity = min(value("command_capacity"), MOST_ENTRIES)
    responses = Area(value("responses"), layout.RESPONSE_SIZE, capacity, Use.RESPONSES)
    sender.claim(responses)
    sender.claim(_index(value("response_index"), Use.RESPONSE_INDEX, capacity))
    frames = min(value("ethernet_capacity"), MOST_ENTRIES)
    sender.claim(Area(value("ethernet_completions"), FRAME_LENGTH, frames, Use.FRAMES))
    sender.claim(_index(value("ethernet_consumed"), Use.FRAME_INDEX, frames))
    sender.bells[value("bell_command")] = "commands"
    sender.bells[value("bell_response")] = "responses"
    if value("ethernet_completions"):
        sender.bells[value("ethernet_bell")] = "Ethernet frames"


def _take_conf(sender: Memory, info: bytearray) -> None:
    value = _reader(PEER_INFO, info)
    commands = Area(value("commands"), layout.COMMAND_SIZE, port.COMMAND_CAPACITY, Use.COMMANDS)
    sender.claim(commands)
    sender.claim(_index(value("command_produced"), Use.COMMAND_INDEX, port.COMMAND_CAPACITY))
    buffers = port.ETHERNET_CAPACITY
    sender.claim(Area(value("ethernet_buffers"), layout.SEGMENT.size, buffers, Use.BUFFERS))
    sender.claim(_index(value("ethernet_produced"), Use.BUFFER_INDEX, buffers))
    if value("ethernet_buffers"):
        sender.bells[value("ethernet_send_bell")] = "Ethernet buffers"


# -- commands -------------------------------------------------------------------------------------


def _create_region(sender: Memory, command: bytes) -> None:
    value = _reader(layout.MR_CREATE, command)
    start, most = layout.CREATE_LIST, layout.CREATE_SEGMENTS
    sender.register(
        Region(
            sender.name,
            value("pd_key"),
            value("key"),
            value("address"),
            value("length"),
            segments(command, start, value("count"), most),
        )
    )


def _append_region(sender: Memory, command: bytes) -> None:
    value = _reader(layout.MR_APPEND, command)
    start, most = layout.APPEND_LIST, layout.APPEND_SEGMENTS
    found = segments(command, start, value("count"), most)
    sender.append(value("pd_key"), value("key"), found)


def _delete_region(sender: Memory, command: bytes) -> None:
    value = _reader(layout.MR_DELETE, command)
    sender.deregister(value("pd_key"), value("key"))


def _create_queue(sender: Memory, command: bytes) -> None:
    value = _reader(layout.QP_CREATE, command)
    sends = min(max(1, value("send_capacity")), MOST_ENTRIES), value("send_pieces")
    receives = min(max(1, value("recv_capacity")), MOST_ENTRIES), value("recv_pieces")
    key, bell = value("key"), value("completion_bell")
    known = len(sender.queues) < MOST_QUEUES or key in sender.queues
    if not known or max(sends[1], receives[1]) > MOST_PIECES:
        return
    queue = sender.queues[key] = Queue(sender.name, key, sends, receives, bell)
    sender.claim(Area(value("send_completions"), COMPLETION.size, sends[0], Use.COMPLETIONS, queue))
    sender.claim(_index(value("send_consumed"), Use.CONSUMED, sends[0], queue))
    sender.bells[bell] = "completions"


def _modify_queue(sender: Memory, command: bytes) -> None:
    value = _reader(layout.QP_MODIFY, command)
    queue = sender.queues.get(value("key"))
    if queue is not None:
        queue.peer_key = value("peer_key")


def _twin(executor: Memory, queue: Queue, response: bytes) -> None:
    """The rings of a queue pair's twin, which are in the memory of who made it."""
    value = _reader(layout.KEYED_RESPONSE, response)
    receive = RECV_ENTRY.size + queue.recv_pieces * PIECE_SIZE
    send = SEND_ENTRY.size + queue.send_pieces * PIECE_SIZE
    executor.claim(Area(value("recv_entries"), receive, queue.receives, Use.RECEIVES, queue))
    executor.claim(Area(value("send_entries"), send, queue.sends, Use.SENDS, queue))
    executor.claim(_index(value("recv_produced"), Use.RECEIVE_INDEX, queue.receives, queue))
    executor.claim(_index(value("send_produced"), Use.SEND_INDEX, queue.sends, queue))
    executor.bells[value("send_bell")] = f"sends of {queue}"


def _reader(table: Struct, data: bytes | bytearray) -> Callable[[str], int]:
    return lambda name: table.get(data, name)
