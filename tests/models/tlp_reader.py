"""Reads the packets of buses in a capture and restores the accesses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import BinaryIO, Final

from bluebridge.device.buslog.reader import LogError
from bluebridge.device.layout import pcie
from bluebridge.device.packets.tlp import tags
from bluebridge.host_tools.analyzer.pcap import pcapng
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction

_EXPORTED: Final = tags(pcie.DISSECTOR)
_KINDS: Final = {
    pcie.TlpType.MEMORY_READ_32: Tlp.MEMORY_READ,
    pcie.TlpType.MEMORY_READ_64: Tlp.MEMORY_READ,
    pcie.TlpType.MEMORY_WRITE_32: Tlp.MEMORY_WRITE,
    pcie.TlpType.MEMORY_WRITE_64: Tlp.MEMORY_WRITE,
    pcie.TlpType.CONFIG_READ_0: Tlp.CONFIG_READ,
    pcie.TlpType.CONFIG_WRITE_0: Tlp.CONFIG_WRITE,
}
_COMPLETIONS: Final = (pcie.TlpType.COMPLETION, pcie.TlpType.COMPLETION_DATA)
_WITH_DATA: Final = 0x40


@dataclass(slots=True)
class TlpPacket:
    """A packet of a function's bus, at `time` in ns since 1970: pseudo-header, TLP or text.

    `kind` and `values` are the TLP's header, None and empty for a text.
    """

    device: str
    time: int
    head: dict[str, int]
    kind: pcie.TlpType | None
    values: dict[str, int]
    payload: bytes

    @property
    def address(self) -> int:
        """The address of the first byte of a request."""
        name = "address" if "address" in self.values else "register"
        return self.values[name] + _lead(self.values["first_enables"])

    @property
    def dwords(self) -> int:
        """Length in dwords of the data that a packet carries or requests."""
        return self.values["length"] or pcie.MAX_DWORDS

    @property
    def asked(self) -> int:
        """Number of bytes that a request reads or writes."""
        first, last = self.values["first_enables"], self.values["last_enables"]
        if self.dwords == 1:
            return first.bit_count()
        return first.bit_count() + last.bit_count() + 4 * (self.dwords - 2)


def tlp_packets(file: BinaryIO) -> Iterator[TlpPacket]:
    """Yield the packets of buses in a pcapng file; raises `LogError` when it is damaged."""
    for packet in pcapng.packets(file):
        if packet.link == pcie.LINKTYPE_EXPORTED_PDU and packet.data.startswith(_EXPORTED):
            yield _parsed(packet.time, packet.data[len(_EXPORTED) :])


def read_transactions(file: BinaryIO, started_ns: int = 0) -> Iterator[Transaction]:
    """Yield the accesses in the file's order, with times in seconds since `started_ns`.

    `started_ns` is the log's, in ns since 1970. The capture of a whole log gives each of its
    transactions but those of wires and of entries taken from BlueFlame registers. Raises `LogError`
    when the file is damaged.
    """
    for _, group in groupby(tlp_packets(file), lambda one: (one.device, one.head["event"])):
        try:
            one = _joined(list(group), started_ns)
        except (ValueError, KeyError) as error:  # KeyError: texts and packets of one event
            raise LogError(f"a packet of the capture is damaged: {error}") from error
        yield one


def _parsed(time: int, data: bytes) -> TlpPacket:
    try:
        raw = pcie.PSEUDO_HEADER.unpack(data)
        head = {name: value for name, value in raw.items() if isinstance(value, int)}
        name = data[
            pcie.PSEUDO_HEADER.size : pcie.PSEUDO_HEADER.size + head["name_length"]
        ].decode()
        rest = data[head["header_length"] :]
        if head["version"] != pcie.VERSION:
            raise LogError(f"the capture's pseudo-headers have version {head['version']}, not 1")
        if pcie.Content(head["content"]) is pcie.Content.TEXT:
            return TlpPacket(name, time, head, None, {}, rest)
        kind = pcie.TlpType(rest[0])
        layout = pcie.BY_TYPE[kind]
        fields = layout.unpack(rest)
        values = {name: value for name, value in fields.items() if isinstance(value, int)}
    except (ValueError, IndexError) as error:
        raise LogError(f"a packet of the capture is damaged: {error}") from error
    return TlpPacket(name, time, head, kind, values, rest[layout.size :])


def _joined(group: list[TlpPacket], started_ns: int) -> Transaction:
    first = group[0]
    head, flags = first.head, pcie.Flags(first.head["flags"])
    if first.kind is None:
        tlp, address, data, text = Tlp.NONE, head["base"], first.payload, first.payload.decode()
    elif first.kind in _KINDS:
        tlp, address = _KINDS[first.kind], first.address - head["base"]
        data, text = _data(group), ""
    else:
        raise LogError("the capture begins with a completion: its request is missing")
    obj = head["object"]
    if flags & pcie.Flags.ADDRESS_UNKNOWN:
        address, obj = obj, 0
    return Transaction(
        number=head["event"],
        time=(first.time - started_ns) / 1e9,
        device=first.device,
        tlp=tlp,
        role=Role[pcie.Purpose(head["purpose"]).name],
        upstream=bool(flags & pcie.Flags.UPSTREAM),
        address=address,
        length=head["length"],
        data=data,
        obj=obj,
        bar=0 if head["bar"] == pcie.NO_BAR else head["bar"],
        text=text,
        last=head["last_event"],
        stores=head["stores"],
    )


def _data(group: list[TlpPacket]) -> bytes:
    """Return the data of an access's packets, in order, without the padding."""
    asked, data, lead, missing = 0, b"", 0, 0
    for packet in group:
        if packet.kind not in _COMPLETIONS:
            lead, missing = packet.address % 4, packet.asked
            asked += missing
        if packet.kind is not None and packet.kind & _WITH_DATA:
            there = min(missing, 4 * packet.dwords - lead)
            data += packet.payload[lead : lead + there]
            lead, missing = 0, missing - there
    if asked != group[0].head["length"] or len(data) != group[0].head["kept"]:
        raise LogError(f"packets of event {group[0].head['event']} are missing in the capture")
    return data


def _lead(enables: int) -> int:
    return (enables & -enables).bit_length() - 1 if enables else 0
