"""The steps of the demonstration with the kernel's drivers; each says what it saw.

Every function raises `LabError` when something is not as it should be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from bluebridge.device.layout.ioat import registers as ioat
from bluebridge.device.layout.ntb import models
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.ntb_demo import packet
from bluebridge.host_tools.programs import checked_transfer
from bluebridge.host_tools.programs import ntb_clients as clients
from bluebridge.host_tools.programs.ntb_clients import PERF, STATS, TOOL, TOOL_CLIENT
from bluebridge.host_tools.programs.ntb_guests import ADDRESSES, Guests

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
Say = Callable[[str], None]


def link(guests: Guests, say: Say) -> None:
    """Print the devices that the guests have, and that the link is up."""
    for guest in guests.machines:
        names = guests.run(guest, f"lspci -nn | grep -E '{_DEVICES}'")
        for name in names.splitlines():
            say(f"guest {guest.name}: {name}")
        said = guests.run(guest, "dmesg | grep -o 'qp 0: Link Up' | tail -n 1")
        if not said:
            raise LabError(f"guest {guest.name}: ntb_transport has no link", "read its dmesg")
        say(f"guest {guest.name}: ntb_transport says: {said}")


def ping(guests: Guests, say: Say) -> None:
    """Send a few packets from one guest to the other."""
    said = pings.check(guests.machines[0], B_ADDRESS, "-c 3 -i 0.2")
    for line in said.splitlines():
        if "bytes from" in line or line == pings.ANSWERED:
            say(line)


def one_packet(guests: Guests, say: Say) -> None:
    """Send a packet large enough for the DMA engine, and explain how it crosses the buses."""
    a, b = guests.machines
    guests.run(a, f"ping -c 1 -s {PAYLOAD} -w 30 {B_ADDRESS}")
    say(f"An ICMP echo of {PAYLOAD} bytes, a frame of {FRAME}. a's processor stores the frame's")
    say("length and number into b's memory, a's engine copies the frame there, a's processor marks")
    say("it as done and rings a doorbell; b's engine copies it out of the window's buffer.")
    for line in packet.lines(Path(guests.pair.logs), FRAME, a.name, b.name):
        say(line)


def transfer(guests: Guests, say: Say) -> None:
    """Send random bytes by TCP; print the checksum on both sides, and the engine's copies."""
    rate = checked_transfer.transfer(guests.pair, B_ADDRESS, TRANSFER_MIB, say)
    copies = _async_copies(guests, guests.machines[0])
    say(f"the same, {rate:.1f} MB/s; a's engine made {copies} copies")
    if not copies:
        raise LabError("the DMA engine copied nothing", f"read {guests.pair.logs}/console-a.log")


def _async_copies(guests: Guests, guest: Vm) -> int:
    found = re.search(r"tx_async\s*-?\s*(\d+)", guests.run(guest, f"cat {STATS}"))
    if found is None:
        raise LabError(f"guest {guest.name}: ntb_transport keeps no statistics")
    return int(found[1])


def unload_network(guests: Guests) -> None:
    """Unload the network's drivers, since only one client at a time may have the bridge."""
    guests.both("rmmod ntb_netdev && rmmod ntb_transport")


def perf(guests: Guests, say: Say) -> None:
    """Copy 64 MiB by the DMA engine through the window, each way, with ntb_perf."""
    clients.load_both(guests, PERF_CLIENT)
    for guest in guests.machines:
        guests.run(guest, f"{PERF} timeout 60 sh -c 'echo 0 > run'")
        result = guests.run(guest, f"{PERF} grep copied run || cat run")
        say(f"guest {guest.name}: {result}")
        if "copied 67108864 bytes" not in result:
            raise LabError(f"guest {guest.name}: ntb_perf did not copy its bytes", "read its dmesg")
    clients.unload_both(guests, PERF_CLIENT)


def tool(guests: Guests, say: Say) -> None:
    """Use doorbells and scratchpads directly, with ntb_tool."""
    guests.both(TOOL_CLIENT.load)
    guests.both(f"{TOOL} echo Y > peer0/link_event")
    for here, there in guests.ways:
        guests.run(here, f"{TOOL} echo 's {RINGS:#x}' > peer_db")
        rung = guests.run(
            there,
            f"{TOOL} timeout 30 sh -c 'echo {RINGS:#x} > db_event'; cat db; echo c 0xff > db",
        )
        say(f"{here.name} rings doorbells {RINGS:#x}: {there.name} finds {rung}")
        wanted = [0x5A000000 + 256 * n + ord(here.name[0]) for n in range(4)]
        stores = "; ".join(f"echo {value} > peer0/spad{n}" for n, value in enumerate(wanted))
        guests.run(here, f"{TOOL} {stores}")
        seen = guests.run(there, f"{TOOL} cat spad0 spad1 spad2 spad3").split()
        say(f"{here.name} writes scratchpads 0 to 3: {there.name} reads {' '.join(seen)}")
        if int(rung, 16) != RINGS or [int(word, 16) for word in seen] != wanted:
            raise LabError("doorbells or scratchpads are not what the peer wrote", "read the log")
    guests.both("rmmod ntb_tool")
