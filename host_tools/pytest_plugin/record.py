"""One record of the bus log, as the tests of users get it."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.event_lines import table_line


@dataclass(frozen=True, slots=True)
class Record:
    """One event of the bus log with its decoded meaning; `str` gives its line of the table."""

    event: Event

    @property
    def guest(self) -> str:
        """The name of the guest whose device took part in the transaction."""
        return self.event.device

    @property
    def time(self) -> float:
        """The time of the event in seconds since the log began."""
        return self.event.time

    @property
    def kind(self) -> Kind:
        """The kind of transaction."""
        return self.event.kind

    @property
    def what(self) -> What:
        """The purpose of a DMA transfer."""
        return self.event.what

    @property
    def obj(self) -> int:
        """The number of the queue or region that a DMA transfer is for."""
        return self.event.obj

    @property
    def bar(self) -> int:
        """The BAR of an MMIO access."""
        return self.event.bar

    @property
    def address(self) -> int:
        """The offset in the BAR, guest-physical address or vector, depending on the kind."""
        return self.event.address

    @property
    def length(self) -> int:
        """The number of bytes on the bus."""
        return self.event.length

    @property
    def data(self) -> bytes:
        """The bytes on the bus, or their beginning: the log captures 64 unless told otherwise."""
        return self.event.data

    @property
    def decoded(self) -> str:
        """The transaction in words, such as `UAR[128].send qpn=0x49`."""
        return decode(self.event)

    def __str__(self) -> str:
        return table_line(self.event)
