"""What the demonstration does with the kernel's drivers; each step says what it saw.

Every function raises `LabError` when something is not as it should be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from host_tools.errors import LabError
from host_tools.lab import Pair
from host_tools.ntb_demo import packet
from host_tools.vm import Vm

SECONDS = 120.0
B_ADDRESS = "10.9.1.2"
PORT = 5001
PAYLOAD = 3000
FRAME = PAYLOAD + 8 + 20 + 14
"""With headers of ICMP, IPv4 and Ethernet; ntb_transport gives more than 1 KiB to the engine."""
TRANSFER_MIB = 16
RINGS = 0x11
_TOOL = "cd /sys/kernel/debug/ntb_tool/*; "
_PERF = "cd /sys/kernel/debug/ntb_perf/*; "
_DEVICES = "8086:(347e|0b00|0e0d|0e20)|11f8:8531"
_STATS = "cat /sys/kernel/debug/ntb_transport/*/qp0/stats"
_RECEIVE = f"""
import hashlib, socket
with socket.create_server(("", {PORT})) as server:
    connection, _ = server.accept()
    seen, total = hashlib.md5(), 0
    while data := connection.recv(1 << 16):
        seen.update(data)
        total += len(data)
print(total, seen.hexdigest())
"""
_SEND = f"""
import hashlib, os, socket, time
data = os.urandom({TRANSFER_MIB} << 20)
while True:
    try:
        connection = socket.create_connection(("{B_ADDRESS}", {PORT}), 10)
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
begin = time.monotonic()
connection.settimeout(None)
connection.sendall(data)
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
print(len(data), hashlib.md5(data).hexdigest(), time.monotonic() - begin)
"""

Say = Callable[[str], None]


def _run(guest: Vm, line: str) -> str:
    return guest.run(line, timeout=SECONDS).text.strip()


def _both(pair: Pair, line: str) -> None:
    def run(guest: Vm) -> None:
        _run(guest, line)

    pair.both(run)


def link(pair: Pair, say: Say) -> None:
    """What the guests have, and that the link is up."""
    for guest in pair.machines:
        names = _run(guest, f"lspci -nn | grep -E '{_DEVICES}'")
        for name in names.splitlines():
            say(f"guest {guest.name}: {name}")
        said = _run(guest, "dmesg | grep -o 'qp 0: Link Up' | tail -n 1")
        if not said:
            raise LabError(f"guest {guest.name}: ntb_transport has no link", "read its dmesg")
        say(f"guest {guest.name}: ntb_transport says: {said}")


def ping(pair: Pair, say: Say) -> None:
    """A few packets."""
    said = _run(pair.a, f"ping -c 3 -i 0.2 -w 30 {B_ADDRESS}")
    for line in said.splitlines():
        if "bytes from" in line or "packet loss" in line:
            say(line)
    if " 0% packet loss" not in said:
        raise LabError("ping lost packets over the bridge", f"read {pair.logs}/console-a.log")


def one_packet(pair: Pair, say: Say) -> None:
    """A packet large enough for the engine, and what of it crossed the buses."""
    _run(pair.a, f"ping -c 1 -s {PAYLOAD} -w 30 {B_ADDRESS}")
    say(f"An ICMP echo of {PAYLOAD} bytes, a frame of {FRAME}. a's processor stores the frame's")
    say("length and number into b's memory, a's engine copies the frame there, a's processor marks")
    say("it as done and rings a doorbell; b's engine copies it out of the window's buffer.")
    for line in packet.lines(Path(pair.logs), FRAME, pair.a.name, pair.b.name):
        say(line)


def transfer(pair: Pair, say: Say) -> None:
    """Random bytes by TCP, their checksum on both sides, the engines' share of them."""
    said: dict[str, list[str]] = {}

    def run(guest: Vm, program: str) -> None:
        done = guest.run(["python3", "-c", program], timeout=SECONDS)
        said[guest.name] = done.text.split()

    pair.together(lambda: run(pair.b, _RECEIVE), lambda: run(pair.a, _SEND))
    (sent, told, seconds), (taken, seen) = said["a"], said["b"]
    say(f"a sent     {sent} bytes, md5 {told}")
    say(f"b received {taken} bytes, md5 {seen}")
    if (sent, told) != (taken, seen):
        raise LabError("the bytes that arrived are not those that were sent", f"read {pair.logs}")
    copies = _async_copies(pair.a)
    say(f"the same, {int(sent) / float(seconds) / 1e6:.1f} MB/s; a's engine made {copies} copies")
    if not copies:
        raise LabError("the DMA engine copied nothing", f"read {pair.logs}/console-a.log")


def _async_copies(guest: Vm) -> int:
    found = re.search(r"tx_async\s*-?\s*(\d+)", _run(guest, _STATS))
    if found is None:
        raise LabError(f"guest {guest.name}: ntb_transport keeps no statistics")
    return int(found[1])


def unload_network(pair: Pair) -> None:
    """One client at a time may have the bridge."""
    _both(pair, "rmmod ntb_netdev && rmmod ntb_transport")


def perf(pair: Pair, say: Say) -> None:
    """64 MiB by the engine through the window, each way."""
    _both(pair, "modprobe ntb_perf use_dma=1 total_order=26")
    _both(pair, f"{_PERF} until grep -q 'Out buffer xlat' info; do sleep 0.1; done")
    for guest in pair.machines:
        _run(guest, f"{_PERF} timeout 60 sh -c 'echo 0 > run'")
        result = _run(guest, f"{_PERF} grep copied run || cat run")
        say(f"guest {guest.name}: {result}")
        if "copied 67108864 bytes" not in result:
            raise LabError(f"guest {guest.name}: ntb_perf did not copy its bytes", "read its dmesg")
    _both(pair, "rmmod ntb_perf")


def tool(pair: Pair, say: Say) -> None:
    """Doorbells and scratchpads by hand."""
    _both(pair, "modprobe ntb_tool")
    _both(pair, f"{_TOOL} echo Y > link; echo Y > peer0/link_event")
    for here, there in ((pair.a, pair.b), (pair.b, pair.a)):
        _run(here, f"{_TOOL} echo 's {RINGS:#x}' > peer_db")
        rung = _run(
            there,
            f"{_TOOL} timeout 30 sh -c 'echo {RINGS:#x} > db_event'; cat db; echo c 0xff > db",
        )
        say(f"{here.name} rings doorbells {RINGS:#x}: {there.name} finds {rung}")
        wanted = [0x5A000000 + 256 * n + ord(here.name[0]) for n in range(4)]
        stores = "; ".join(f"echo {value} > peer0/spad{n}" for n, value in enumerate(wanted))
        _run(here, f"{_TOOL} {stores}")
        seen = _run(there, f"{_TOOL} cat spad0 spad1 spad2 spad3").split()
        say(f"{here.name} writes scratchpads 0 to 3: {there.name} reads {' '.join(seen)}")
        if int(rung, 16) != RINGS or [int(word, 16) for word in seen] != wanted:
            raise LabError("doorbells or scratchpads are not what the peer wrote", "read the log")
    _both(pair, "rmmod ntb_tool")
