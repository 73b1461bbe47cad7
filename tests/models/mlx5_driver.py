"""A little driver of a ConnectX-5 for tests: speaks to an `Hca` through BAR0, as a guest does."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
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
)
from bluebridge.device.layout.mlx5.event_queues import CREATE_EQ, EQC, EQE_BYTES
from bluebridge.device.mlx5.device import Hca
from bluebridge.device.mlx5.settings.config import Config
from tests.models.fake_host import FakeHost
from tests.models.mlx5_node import mac_of

MAC = mac_of(1)


@dataclass(slots=True)
class Answer:
    """The output of a command, and how its entry fared."""

    output: bytes
    delivery: Delivery

    @property
    def status(self) -> Status:
        """The status in the output."""
        return Status(OUTPUT.get(self.output, "status"))

    @property
    def syndrome(self) -> int:
        """The syndrome in the output."""
        return OUTPUT.get(self.output, "syndrome")

    @property
    def number(self) -> int:
        """The number of an object that was made."""
        return OUTPUT.get(self.output, "number")


@dataclass(slots=True)
class EventRing:
    """An event queue that the driver made."""

    eqn: int
    address: int
    size: int
    consumer: int = 0


class Mlx5Driver:
    """Host, device and the driver's own state; `token` is that of the next command."""

    def __init__(
        self,
        name: str = "a",
        memory: int = 16 << 20,
        *,
        host: FakeHost | None = None,
        fabric: Fabric | None = None,
        mac: bytes = MAC,
        blueflame: bool = False,
    ) -> None:
        self.host = host or FakeHost(name, size=memory)
        self.fabric = fabric or LocalFabric()
        self.hca = Hca(self.host, [self.fabric], Config(name, mac, blueflame=blueflame))
        self.adapter = self.hca.adapter
        self.queue = self.host.allocate(4096)
        self.token = 1
        self.uar = 0

    # -- registers ----------------------------------------------------------------------------

    def read32(self, offset: int) -> int:
        """A register of BAR0."""
        return int.from_bytes(self.hca.bar_read(0, offset, 4), "big")

    def write32(self, offset: int, value: int) -> None:
        """A store into BAR0."""
        self.hca.bar_write(0, offset, value.to_bytes(4, "big"))

    def set_queue(self) -> None:
        """Say where the command queue is."""
        self.write32(init_segment.QUEUE_HIGH, self.queue >> 32)
        self.write32(init_segment.QUEUE_LOW, self.queue & 0xFFFFFFFF)

    # -- commands -----------------------------------------------------------------------------

    def chain(self, blocks: int) -> list[int]:
        """Addresses of new mailboxes, linked and numbered, with the present token."""
        places = [self.host.allocate(MAILBOX.size, MAILBOX_ALIGNMENT) for _ in range(blocks)]
        for number, place in enumerate(places):
            following = places[number + 1] if number + 1 < blocks else 0
            block = MAILBOX.pack(next=following, number=number, token=self.token)
            self.host.poke(place, block)
        return places

    def write_entry(self, slot: int, data: bytes, output: int) -> tuple[list[int], list[int]]:
        """Write an entry with its mailboxes, and give it to hardware; return both chains."""
        parts = [data[at : at + BLOCK_BYTES] for at in range(INLINE_BYTES, len(data), BLOCK_BYTES)]
        given = self.chain(len(parts))
        for place, part in zip(given, parts, strict=True):
            self.host.poke(place, part)
        taken = self.chain(max(0, -(-(output - INLINE_BYTES) // BLOCK_BYTES)))
        entry = ENTRY.pack(
            type=PCI_TRANSPORT, input_length=len(data), output_length=output, token=self.token,
            input=data[:INLINE_BYTES].ljust(INLINE_BYTES, b"\0"), owner=1,
            input_mailbox=given[0] if given else 0, output_mailbox=taken[0] if taken else 0,
        )  # fmt: skip
        self.host.poke(self.entry_address(slot), entry)
        return given, taken

    def entry_address(self, slot: int) -> int:
        """Where the entry of a slot is."""
        return self.queue + slot * ENTRY.size

    def entry(self, slot: int) -> bytes:
        """The entry of a slot as it is now."""
        return self.host.peek(self.entry_address(slot), ENTRY.size)

    def ring(self, slots: int) -> None:
        """Have entries carried out."""
        self.write32(init_segment.DOORBELL, slots)

    def answer(self, slot: int, taken: list[int], output: int) -> Answer:
        """Return what is in an entry that is done, and in its mailboxes."""
        entry = self.entry(slot)
        assert not ENTRY.get(entry, "owner"), "the command is not done"
        rest = b"".join(self.host.peek(place, BLOCK_BYTES) for place in taken)
        found = ENTRY.get_raw(entry, "output") + rest
        return Answer(found[: max(output, INLINE_BYTES)], Delivery(ENTRY.get(entry, "delivery")))

    def run(self, data: bytes, output: int = INLINE_BYTES, slot: int = 0) -> Answer:
        """Carry a command out by its whole input."""
        _, taken = self.write_entry(slot, data, output)
        self.ring(1 << slot)
        self.host.run()
        self.token = self.token % 255 + 1
        return self.answer(slot, taken, output)

    def command(
        self, opcode: int, more: bytes = bytes(8), *, op_mod: int = 0, output: int = INLINE_BYTES
    ) -> Answer:
        """Carry a command out; `more` is its input behind the first 8 bytes."""
        return self.run(bytes(INPUT.pack(opcode=opcode, op_mod=op_mod))[:8] + more, output)

    def numbered(self, opcode: int, number: int) -> Answer:
        """Carry out a command on the object with this number."""
        return self.command(opcode, number.to_bytes(4, "big") + bytes(4))

    # -- bring-up -----------------------------------------------------------------------------

    def start(self) -> Mlx5Driver:
        """Initialise the adapter, with a page of doorbells."""
        self.set_queue()
        for opcode in (Opcode.ENABLE_HCA, Opcode.INIT_HCA):
            assert self.command(opcode).status is Status.OK
        self.uar = self.command(Opcode.ALLOC_UAR).number
        return self

    def create_eq(self, log_size: int, vector: int, mask: int) -> EventRing:
        """Make an event queue, arm it, and return it."""
        size = EQE_BYTES << log_size
        ring = self.host.allocate(size)
        for at in range(EQE_BYTES - 1, size, EQE_BYTES):
            self.host.poke(ring + at, b"\x01")
        answer = self.try_create_eq(ring, log_size, vector, mask)
        assert answer.status is Status.OK
        found = EventRing(answer.number, ring, 1 << log_size)
        self.eq_doorbell(found)
        return found

    def try_create_eq(self, ring: int, log_size: int, vector: int, mask: int) -> Answer:
        """Ask for an event queue in pages from `ring` on."""
        context = EQC.pack(log_size=log_size, vector=vector, uar_page=self.uar)
        data = CREATE_EQ.pack(
            context=bytes(context), event_bitmask=mask.to_bytes(8, "big").ljust(32, b"\0")
        )
        pages = -(-(EQE_BYTES << log_size) // 4096)
        listed = b"".join((ring + 4096 * page).to_bytes(8, "big") for page in range(pages))
        return self.command(Opcode.CREATE_EQ, bytes(data)[8:] + listed)

    def eq_doorbell(self, ring: EventRing, *, arm: bool = True) -> None:
        """Tell what was consumed, and ask for an interrupt."""
        register = init_segment.EQ_ARM if arm else init_segment.EQ_UPDATE
        value = ring.eqn << 24 | ring.consumer & 0xFFFFFF
        self.write32(self.uar * init_segment.UAR_BYTES + register, value)

    def poll_eq(self, ring: EventRing) -> list[bytes]:
        """Consume the entries that hardware wrote."""
        found: list[bytes] = []
        while True:
            at = ring.address + (ring.consumer % ring.size) * EQE_BYTES
            entry = self.host.peek(at, EQE_BYTES)
            if entry[-1] & 1 != (1 if ring.consumer & ring.size else 0):
                return found
            found.append(entry)
            ring.consumer += 1
