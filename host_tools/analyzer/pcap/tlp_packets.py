"""Transactions as packets of their function's bus (docs/tlp-capture.md), with places of BARs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from bluebridge.device.layout import pcie
from bluebridge.device.layout.pci import BAR_64BIT, HEADER
from bluebridge.device.packets import tlp
from bluebridge.device.packets.carriers import Frame
from bluebridge.device.packets.tlp import Packer, tags
from bluebridge.host_tools.analyzer.transaction import MAX_PAYLOAD, Role, Tlp, Transaction, split

FIRST: Final = HEADER.field("bar0").offset
COUNT: Final = 6
_ALL_ONES: Final = 0xFFFFFFFF
"""Value that software writes to a BAR to learn its size, before it writes an address."""
_TYPE: Final = 0xF
_TYPE_OF_MEMORY: Final = 0x7

PURPOSES: Final = {
    role: pcie.Purpose[role.name] for role in Role if role.name in pcie.Purpose.__members__
}
"""The purpose number of each role that a capture can have; others are `Purpose.OTHER`."""
MAX_NAME: Final = (0xFF - pcie.PSEUDO_HEADER.size) & ~3
"""Bytes of a function's name at most, since the pseudo-header's length field has one byte."""

_TAGS: Final = 256
_UNKNOWN_ID: Final = 0
_DWORD: Final = 4
_HEADER: Final = Packer(pcie.PSEUDO_HEADER)
_EXPORTED: Final = tags(pcie.DISSECTOR)


class BarBases:
    """Follows the config accesses of all functions in the order of the log."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, int], int] = {}
        self._wide: set[tuple[str, int]] = set()
        self._sizing: set[tuple[str, int]] = set()

    def follow(self, one: Transaction) -> None:
        """Take a config access; accesses of other registers and of parts of a BAR are ignored."""
        bar, rest = divmod(one.address - FIRST, 4)
        if rest or not 0 <= bar < COUNT or len(one.data) != 4:
            return
        place, value = (one.device, bar), int.from_bytes(one.data, "little")
        if one.tlp is Tlp.CONFIG_WRITE:
            if value == _ALL_ONES:
                self._sizing.add(place)
                return
            self._sizing.discard(place)
        if place not in self._sizing:  # what is read then is a mask of the size
            self._values[place] = value
        if value & _TYPE_OF_MEMORY == BAR_64BIT and (one.device, bar - 1) not in self._wide:
            self._wide.add(place)

    def base(self, device: str, bar: int) -> int:
        """Return the address of a function's BAR, 0 if the log does not tell."""
        value = self._values.get((device, bar), 0) & ~_TYPE
        if (device, bar) in self._wide:
            value |= self._values.get((device, bar + 1), 0) << 32
        return value


class BusPackets:
    """Divides a log's transactions into packets, tagged in 8 bits by function and direction."""

    def __init__(self, bases: BarBases) -> None:
        self._bases = bases
        self._tags: dict[tuple[str, bool], int] = {}
        self._makers: dict[Tlp, Callable[[Transaction], Iterator[Frame]]] = {
            Tlp.MEMORY_READ: self._reads,
            Tlp.MEMORY_WRITE: self._writes,
            Tlp.CONFIG_READ: self._config,
            Tlp.CONFIG_WRITE: self._config,
            Tlp.NONE: self._text,
        }

    def packets(self, one: Transaction) -> Iterator[Frame]:
        """Yield the packets of a transaction on a bus; none for a device's internal transaction."""
        if one.role is Role.ENTRY:
            return iter(())
        return self._makers[one.tlp](one)

    def _reads(self, one: Transaction) -> Iterator[Frame]:
        access = _Access(one, self._base(one))
        at, address = 0, access.address
        for size in _sizes(address, one.length, one.limit):
            tag = self._tag(one)
            yield access.packet(tlp.memory_read(address, size, _UNKNOWN_ID, tag), at)
            remaining = size
            for part in _sizes(address, size):
                header = tlp.completion(
                    part, address, remaining or 1, _UNKNOWN_ID, _UNKNOWN_ID, tag
                )
                yield access.packet(header, at, part, address)
                at, address, remaining = at + part, address + part, remaining - part

    def _writes(self, one: Transaction) -> Iterator[Frame]:
        access = _Access(one, self._base(one))
        at, address = 0, access.address
        for size in _sizes(address, one.length, one.limit):
            header = tlp.memory_write(address, size, _UNKNOWN_ID)
            yield access.packet(header, at, size, address)
            at, address = at + size, address + size

    def _config(self, one: Transaction) -> Iterator[Frame]:
        self._bases.follow(one)
        access = _Access(one, 0)
        read = one.tlp is Tlp.CONFIG_READ
        kind = pcie.TlpType.CONFIG_READ_0 if read else pcie.TlpType.CONFIG_WRITE_0
        at = 0
        for size in _sizes(one.address, one.length, _DWORD):
            tag, offset = self._tag(one), one.address + at
            request = tlp.config(kind, offset, size, _UNKNOWN_ID, tag)
            answer = tlp.config_completion(data=read, completer=_UNKNOWN_ID, tag=tag)
            if read:
                yield access.packet(request, at)
                yield access.packet(answer, at, size, offset)
            else:
                yield access.packet(request, at, size, offset)
                yield access.packet(answer, at)
            at += size

    def _text(self, one: Transaction) -> Iterator[Frame]:
        data = _Access(one, one.address, pcie.Content.TEXT).head(0) + bytes(one.data)
        yield Frame(pcie.LINKTYPE_EXPORTED_PDU, data, len(data))

    def _base(self, one: Transaction) -> int:
        return 0 if one.upstream else self._bases.base(one.device, one.bar)

    def _tag(self, one: Transaction) -> int:
        key = one.device, one.upstream
        tag = self._tags.get(key, 0)
        self._tags[key] = (tag + 1) % _TAGS
        return tag


def _sizes(address: int, length: int, limit: int = MAX_PAYLOAD) -> Iterable[int]:
    """Yield the bytes of each packet of an access; an access without data has one packet."""
    return split(address, length, limit) if length else (0,)


class _Access:
    """The properties that all packets of one transaction share."""

    def __init__(
        self, one: Transaction, base: int, content: pcie.Content = pcie.Content.TLP
    ) -> None:
        self._data = one.data
        memory = not one.upstream and one.tlp in (Tlp.MEMORY_READ, Tlp.MEMORY_WRITE)
        interrupt = one.is_vector
        self.address = 0 if interrupt else one.address + (base if memory else 0)
        name = one.device.encode()[:MAX_NAME]
        self._name = name + bytes(-len(name) & 3)
        flags = pcie.Flags.ID_UNKNOWN if content is pcie.Content.TLP else pcie.Flags(0)
        if one.upstream:
            flags |= pcie.Flags.UPSTREAM
        if interrupt:
            flags |= pcie.Flags.ADDRESS_UNKNOWN
        elif memory and not base:
            flags |= pcie.Flags.ADDRESS_IS_OFFSET
        self._header = _HEADER.pack(
            version=pcie.VERSION,
            header_length=pcie.PSEUDO_HEADER.size + len(self._name),
            content=content,
            flags=flags,
            purpose=PURPOSES.get(one.role, pcie.Purpose.OTHER),
            bar=one.bar if memory else pcie.NO_BAR,
            name_length=len(name),
            stores=one.stores,
            object=one.address if interrupt else one.obj,
            event=one.number,
            last_event=one.last,
            base=base,
            length=one.length,
            kept=len(one.data),
        )

    def head(self, at: int) -> bytes:
        """Return tags and pseudo-header of the packet that begins at byte `at` of the access."""
        return _EXPORTED + self._header[:-4] + at.to_bytes(4, "big") + self._name

    def packet(self, header: bytes, at: int, size: int = -1, address: int = 0) -> Frame:
        """Return a TLP with `size` bytes of data, the first at `address`; none if negative."""
        data = self.head(at) + header
        if size < 0:
            return Frame(pcie.LINKTYPE_EXPORTED_PDU, data, len(data))
        kept = bytes(self._data[at : at + size])
        length = len(data) + _DWORD * tlp.dwords(address, size)
        return Frame(pcie.LINKTYPE_EXPORTED_PDU, data + tlp.payload(address, kept, size), length)
