"""`bluebridge ntb demo`: boots a pair, shows its bridge at work with the kernel's drivers, ends it.

Every step raises `LabError` when something is not as it should be.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path

from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.device.layout import ioat
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ntb import models
from bluebridge.device.layout.ntb.models import BY_NAME, DEFAULT
from bluebridge.device.server.options import BridgeOptions
from bluebridge.host_tools.analyzer.event_lines import HEADER, table_line
from bluebridge.host_tools.errors import LabError, Reporter
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.programs import ntb_clients as clients
from bluebridge.host_tools.programs import perftest
from bluebridge.host_tools.programs.ntb_clients import (
    ADDRESSES,
    PERF,
    STATS,
    TOOL,
    TOOL_CLIENT,
    Guests,
)
from bluebridge.printable import printable_lines

_PATIENCE = 20.0
_PAUSE = 0.1
_BEFORE = 30
"""The number of events before the copy among which the frame's header is looked for."""

B_ADDRESS = ADDRESSES["b"]
PAYLOAD = 3000
FRAME = PAYLOAD + 8 + 20 + 14
"""The bytes of a ping with headers; ntb_transport gives more than 1 KiB to the engine."""
TRANSFER_MIB = 16
RINGS = 0x11
_DEVICES = "|".join(
    f"{vendor:04x}:{device:04x}" for vendor, device in (*models.BY_PCI_ID, *ioat.PCI_IDS)
)
"""The PCI IDs of bridges and engines, as an extended regular expression."""
PERF_CLIENT = clients.perf("use_dma=1 total_order=26")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    demo = actions.add_parser(
        "demo",
        help="boot a pair with a bridge and show what it does",
        description="Boot two guests with a bridge between them and a DMA engine in each, and let "
        "the kernel's own drivers use them: ping and TCP over ntb_netdev, one packet of it in the "
        "bus log, ntb_perf, doorbells and scratchpads by ntb_tool. Exit status 0 if all of it is "
        "right; the guests are ended in any case.",
    )
    demo.add_argument(
        "--model",
        choices=tuple(BY_NAME),
        default=DEFAULT.name,
        help=f"which bridge (default {DEFAULT.name})",
    )
    demo.add_argument("--log", type=Path, metavar="DIR", help="folder for the bus log")
    demo.add_argument("--quiet", action="store_true", help="no progress on standard error")


def packet_lines(logs: Path, size: int, sender: str, receiver: str) -> list[str]:
    """The table lines of the first frame of `size` bytes that a DMA engine copied.

    `sender` and `receiver` are guests. Raises `LabError` when the log has none after a while; what
    has just happened may not be written yet.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            events = list(LogReader(logs).tail())
        except LogError as error:
            raise LabError(f"no bus log: {error}") from error
        found = packet_bounds(events, size, sender, receiver)
        if found is not None:
            return [HEADER, *(table_line(event) for event in events[slice(*found)])]
        if time.monotonic() > deadline:
            raise LabError(f"the bus log has no frame of {size} bytes", f"read it: {logs}")
        time.sleep(_PAUSE)


def packet_bounds(
    events: Sequence[Event], size: int, sender: str, receiver: str
) -> tuple[int, int] | None:
    """Return the index of a frame's first event and of the event after its last; else None."""
    sent = _copied(events, 0, f"{sender}.dma", size)
    if sent is None:
        return None
    taken = _copied(events, sent, f"{receiver}.dma", size)
    if taken is None:
        return None
    for last in range(taken, len(events)):
        if events[last].kind is Kind.IRQ and events[last].device == f"{receiver}.dma":
            return _header(events, sent, sender, size), last + 1
    return None


def _copied(events: Sequence[Event], start: int, engine: str, size: int) -> int | None:
    """The first copy of `size` bytes that an engine wrote."""
    for index in range(start, len(events)):
        event = events[index]
        if event.device == engine and event.length == size and event.what is What.COPY:
            return index
    return None


def _header(events: Sequence[Event], sent: int, sender: str, size: int) -> int:
    """Where the sender's processor stored the frame's length into the peer's memory.

    ntb_transport writes it before the copy (ntb_tx_copy_callback marks the frame when it is done).
    """
    length = size.to_bytes(4, "little")
    for index in range(sent, max(-1, sent - _BEFORE), -1):
        event = events[index]
        stored = event.kind is Kind.MMIO_WRITE and event.bar and event.data == length
        if stored and event.device.startswith(f"{sender}."):
            return index
    return sent


def link(guests: Guests) -> None:
    """Print the devices that the guests have, and that the link is up."""
    for guest in guests.machines:
        names = guests.run(guest, f"lspci -nn | grep -E '{_DEVICES}'")
        for name in names.splitlines():
            _say(f"guest {guest.name}: {name}")
        said = guests.run(guest, "dmesg | grep -o 'qp 0: Link Up' | tail -n 1")
        if not said:
            raise LabError(f"guest {guest.name}: ntb_transport has no link", "read its dmesg")
        _say(f"guest {guest.name}: ntb_transport says: {said}")


def ping(guests: Guests) -> None:
    """Send a few packets from one guest to the other."""
    said = pings.check(guests.machines[0], B_ADDRESS, "-c 3 -i 0.2")
    for line in said.splitlines():
        if "bytes from" in line or line == pings.ANSWERED:
            _say(line)


def one_packet(guests: Guests) -> None:
    """Send a packet large enough for the DMA engine, and explain how it crosses the buses."""
    a, b = guests.machines
    guests.run(a, f"ping -c 1 -s {PAYLOAD} -w 30 {B_ADDRESS}")
    _say(
        f"An ICMP echo of {PAYLOAD} bytes, a frame of {FRAME}. a's processor stores the frame's\n"
        "length and number into b's memory, a's engine copies the frame there, a's processor\n"
        "marks it as done and rings a doorbell; b's engine copies it out of the window's buffer."
    )
    for line in packet_lines(Path(guests.pair.logs), FRAME, a.name, b.name):
        _say(line)


def transfer(guests: Guests) -> None:
    """Send random bytes by TCP; print the checksum on both sides, and the engine's copies."""
    rate = perftest.transfer(guests.pair, B_ADDRESS, TRANSFER_MIB, _say)
    a = guests.machines[0]
    found = re.search(r"tx_async\s*-?\s*(\d+)", guests.run(a, f"cat {STATS}"))
    if found is None:
        raise LabError(f"guest {a.name}: ntb_transport keeps no statistics")
    copies = int(found[1])
    _say(f"the same, {rate:.1f} MB/s; a's engine made {copies} copies")
    if not copies:
        raise LabError("the DMA engine copied nothing", f"read {guests.pair.logs}/console-a.log")
    # Only one client at a time may have the bridge.
    guests.both("rmmod ntb_netdev && rmmod ntb_transport")


def perf(guests: Guests) -> None:
    """Copy 64 MiB by the DMA engine through the window, each way, with ntb_perf."""
    clients.load_both(guests, PERF_CLIENT)
    for guest in guests.machines:
        guests.run(guest, f"{PERF} timeout 60 sh -c 'echo 0 > run'")
        result = guests.run(guest, f"{PERF} grep copied run || cat run")
        _say(f"guest {guest.name}: {result}")
        if "copied 67108864 bytes" not in result:
            raise LabError(f"guest {guest.name}: ntb_perf did not copy its bytes", "read its dmesg")
    clients.unload_both(guests, PERF_CLIENT)


def tool(guests: Guests) -> None:
    """Use doorbells and scratchpads directly, with ntb_tool."""
    guests.both(TOOL_CLIENT.load)
    guests.both(f"{TOOL} echo Y > peer0/link_event")
    for here, there in guests.ways:
        guests.run(here, f"{TOOL} echo 's {RINGS:#x}' > peer_db")
        rung = guests.run(
            there, f"{TOOL} timeout 30 sh -c 'echo {RINGS:#x} > db_event'; cat db; echo c 0xff > db"
        )
        _say(f"{here.name} rings doorbells {RINGS:#x}: {there.name} finds {rung}")
        wanted = [0x5A000000 + 256 * n + ord(here.name[0]) for n in range(4)]
        stores = "; ".join(f"echo {value} > peer0/spad{n}" for n, value in enumerate(wanted))
        guests.run(here, f"{TOOL} {stores}")
        seen = guests.run(there, f"{TOOL} cat spad0 spad1 spad2 spad3").split()
        _say(f"{here.name} writes scratchpads 0 to 3: {there.name} reads {' '.join(seen)}")
        if int(rung, 16) != RINGS or [int(word, 16) for word in seen] != wanted:
            raise LabError("doorbells or scratchpads are not what the peer wrote", "read the log")
    guests.both("rmmod ntb_tool")


def main(options: argparse.Namespace) -> int:
    """Show all steps on a pair of its own; return 0. Raises `LabError` when a step goes wrong."""
    bridge = BridgeOptions(options.model)
    config = LabConfig(log=options.log, hca=False, vfio=False, kernel=True, bridge=bridge)
    with Pair(config, Reporter(quiet=options.quiet)) as pair:
        guests = Guests(pair, bridge.model)
        for title, step in (
            ("the bridge and the DMA engine, as the guests see them", link),
            ("ping over ntb_netdev", ping),
            ("one packet on the buses of both guests", one_packet),
            (f"{TRANSFER_MIB} MiB by TCP over ntb_netdev", transfer),
            ("ntb_perf, 64 MiB by the DMA engine", perf),
            ("doorbells and scratchpads, by ntb_tool", tool),
        ):
            if step is not perf or guests.model in PERF_CLIENT.models:
                _say(f"\n-- {title}")
                step(guests)
        logs = pair.log_name
    _say("")
    _say(f"all of it was right; the log: bluebridge log {logs} --decode")
    return 0


def _say(text: str) -> None:
    print(printable_lines(text), flush=True)
