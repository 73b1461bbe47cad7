"""Follows what NTRDMA's ports tell each other: guests wrote it, so it may be impossible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.ntb.uses import RegisterUse
from bluebridge.device.layout.ntb.uses import Use as BridgeUse
from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma import port
from bluebridge.device.layout.ntrdma.commands import CommandCode
from bluebridge.device.layout.ntrdma.port import CONF_BLOCK, INIT_BLOCK, PEER_INFO, Spad
from bluebridge.host_tools.analyzer.devices.model import DeviceModel
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.ntrdma import resources
from bluebridge.host_tools.analyzer.ntrdma.memory import RINGS, Area, Memory, Queue, Region, Use
from bluebridge.host_tools.analyzer.ntrdma.resources import Entry, taken
from bluebridge.host_tools.analyzer.ntrdma.stores import Store


@cache
def _scratchpads(model: DeviceModel) -> dict[int, int]:
    uses = {} if model.uses is None else model.uses.registers
    return {
        block.at(register.name, index): index
        for block in model.blocks[0]
        for register in block.registers
        if uses.get((block.name, register.name)) == RegisterUse(BridgeUse.PEER_SCRATCHPAD)
        for index in Spad
    }


class Place(NamedTuple):
    """The place that a store goes to: its use, and the object it belongs to."""

    use: Use
    area: Area | None = None
    region: Region | None = None
    offset: int = 0
    """Offset in the region or in the area."""
    entries: Sequence[Entry] = ()
    """Entries of a ring that this store completes."""

    @property
    def queue(self) -> Queue | None:
        """The queue pair that a ring or an index belongs to, or None."""
        return None if self.area is None else self.area.queue


class Ports:
    """The memories of all machines, as known by the stores that `observe` takes in order."""

    def __init__(self) -> None:
        self._memories: dict[str, Memory] = {}
        self._handlers: dict[int, Callable[[Memory, bytes], None]] = {
            CommandCode.MR_CREATE: resources.create_region,
            CommandCode.MR_APPEND: resources.append_region,
            CommandCode.MR_DELETE: resources.delete_region,
            CommandCode.QP_CREATE: resources.create_queue,
            CommandCode.QP_MODIFY: resources.modify_queue,
        }

    def memory(self, machine: str) -> Memory:
        """Return the memory of a machine, of which nothing may be known yet."""
        found = self._memories.get(machine)
        if found is None:
            found = self._memories[machine] = Memory(machine)
        return found

    @property
    def known(self) -> bool:
        """Whether any machine has told where its rings are."""
        return any(each.known for each in self._memories.values())

    @property
    def unseen(self) -> bool:
        """Whether machines use NTRDMA but none of their stores is in the log."""
        return not self.known and any(each.speaks for each in self._memories.values())

    def place(self, store: Store) -> Place:
        """Return the place of the next store, before `observe` takes that store."""
        if store.is_message:
            return Place(Use.MESSAGE)
        place = self.at(store.receiver, store.event.address)
        if place.area is None or place.use not in RINGS:
            return place
        return place._replace(entries=taken(place.area, store.event))

    def at(self, machine: str, address: int) -> Place:
        """Return the place of an address in a machine's memory."""
        memory = self.memory(machine)
        area = memory.area(address)
        if area is not None:
            return Place(area.use, area, None, address - area.start)
        if address in memory.frames:
            return Place(Use.FRAME)
        found = memory.regions.find(address)
        if found is not None:
            return Place(Use.DATA, None, *found)
        return Place(Use.OTHER)

    def scratchpad(self, event: Event, machine: str) -> int | None:
        """Take a register write; return its number if it is to one of NTRDMA's peer scratchpads."""
        index = _scratchpads(model_of(event.device)).get(event.address)
        if event.bar or index is None or len(event.data) != resources.WORD:
            return None
        memory, value = self.memory(machine), int.from_bytes(event.data, "little")
        if index == Spad.VERSION:
            get = port.VERSIONS.get
            lowest, highest = get(event.data, "lowest"), get(event.data, "highest")
            memory.speaks = 0 < lowest <= port.VERSION <= highest
        if not memory.speaks:
            return None
        if index == Spad.ADDRESS_LOW:
            memory.block = memory.block >> 32 << 32 | value
        elif index == Spad.ADDRESS_HIGH:
            memory.block = value << 32 | memory.block & 0xFFFFFFFF
            memory.claim(Area(memory.block, 1, PEER_INFO.size, Use.BLOCK))
        return index

    def observe(self, store: Store, place: Place) -> None:
        """Learn from a store; `place` is what method `place` returned for it before."""
        sender, receiver = self.memory(store.sender), self.memory(store.receiver)
        area, data = place.area, store.event.data
        if area is None:
            return
        if place.use is Use.BLOCK:
            self._block(sender, receiver, place.offset, data)
        elif place.use is Use.COMMANDS:
            self._commands(sender, receiver, place.entries)
        elif place.use is Use.RESPONSES:
            self._responses(sender, receiver, place.entries)
        elif place.use is Use.BUFFERS:
            resources.post_buffers(sender, place.entries)
        elif area.ring and len(data) >= resources.WORD:
            area.last = int.from_bytes(data[: resources.WORD], "little")

    def _block(self, sender: Memory, receiver: Memory, offset: int, data: bytes) -> None:
        """Take a part of the sender's block, which describes the sender's memory."""
        info = receiver.info
        end = min(offset + len(data), len(info))
        info[offset:end] = data[: end - offset]
        get = PEER_INFO.get
        tagged = get(info, "version_tag") == get(info, "init_tag") == port.VERSION_TAG
        is_ping = offset == PEER_INFO.field("ping").offset and end - offset <= resources.WORD
        if not tagged or is_ping:
            return
        if offset < INIT_BLOCK.stop:
            resources.take_init(sender, info)
        if end > CONF_BLOCK.start and get(info, "conf_tag") == port.VERSION_TAG:
            resources.take_conf(sender, info)

    def _commands(self, sender: Memory, receiver: Memory, entries: Sequence[Entry]) -> None:
        for slot, command in entries:
            if command is None:
                receiver.commands.pop(slot, None)
                continue
            receiver.commands[slot] = command
            handler = self._handlers.get(layout.RESPONSE.get(command, "op"))
            if handler is not None:
                handler(sender, command)

    def _responses(self, sender: Memory, receiver: Memory, entries: Sequence[Entry]) -> None:
        for slot, response in entries:
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
                resources.twin(sender, queue, response)
            elif op == CommandCode.QP_DELETE:
                del receiver.queues[key]
                for memory in (sender, receiver):
                    memory.release(queue)
