"""ntb_tool, ntb_pingpong and ntb_msi_test: link, doorbells, scratchpads, windows, interrupts."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.ntb_clients import (
    COUNT,
    MSI,
    MSI_TEST,
    SECONDS,
    TOOL,
    TOOL_CLIENT,
    Guests,
    Unmet,
    load_both,
    pingpong,
    unload_both,
)
from tests.campaigns.conformance.bridge.load import guests_of, passed, refused
from tests.campaigns.conformance.program import Verdict
from tests.campaigns.conformance.session import Session

SIZE = 16384
_BITS = 0x811
_DELAY_MS = 100
_TRIGGERS = 5


def tool(session: Session) -> Sequence[Verdict]:
    """Use all files of ntb_tool's folder that work on such a bridge, in both directions."""
    guests = guests_of(session)
    load_both(guests, TOOL_CLIENT)
    found = [passed(part="link and link_event")]
    ports = guests.model.ports
    for (guest, _), wanted in zip(guests.ways, (ports, ports[::-1]), strict=True):
        shown = [int(word) for word in guests.run(guest, f"{TOOL} cat port peer0/port").split()]
        guests.expect(f"ports of guest {guest.name}", tuple(shown), wanted)
    found.append(passed(f"{ports[0]} and {ports[1]}", "ports"))
    for here, there in guests.ways:
        _doorbells(guests, here, there)
        _masks(guests, here, there)
    found += [passed(part="doorbells"), passed(part="doorbell masks")]
    count = min(_scratchpads(guests, *way) for way in guests.ways)
    found.append(passed(f"{count} each way", "scratchpads"))
    count, told = _windows(guests), f"{SIZE} bytes each way by MD5; closed: all ones"
    left_out = "; ntb_tool cannot fill window 1: half a BAR, aligned to all of it"
    windows = len(guests.run(guests.machines[0], f"{TOOL} ls -d peer0/mw_trans*").split())
    told += left_out * (guests.model.register_window and windows > count)
    found.append(passed(f"{count} windows, {told}", "windows"))
    for here, there in guests.ways:
        guests.run(there, f"{TOOL} echo N > link")
        guests.run(here, f"{TOOL} echo N > peer0/link_event")
        guests.run(there, f"{TOOL} echo Y > link")
        guests.both(f"{TOOL} echo Y > peer0/link_event")
    found.append(passed(part="link down and up again"))
    unload_both(guests, TOOL_CLIENT)
    return found


def _doorbells(guests: Guests, here: Vm, there: Vm) -> None:
    guests.run(there, f'{TOOL} echo "c $(cat db_valid_mask)" > db_mask; cat db_valid_mask')
    guests.run(here, f"{TOOL} echo 's {_BITS:#x}' > peer_db")
    guests.run(there, f"{TOOL} echo {_BITS:#x} > db_event")
    left = guests.run(there, f"{TOOL} echo 'c 0x11' > db; cat db")
    guests.expect("doorbells left", int(left, 16), _BITS & ~0x11)
    guests.run(there, f"{TOOL} echo 'c {_BITS:#x}' > db")


def _masks(guests: Guests, here: Vm, there: Vm) -> None:
    """A masked doorbell stays pending, and interrupts when it is unmasked."""
    waits = "grep -q tool_db_event_write /proc/$(cat /tmp/waiter)/stack"
    guests.run(there, f"{TOOL} echo 's 0x1' > db_mask; rm -f /tmp/waiter")
    line = f"{TOOL} echo $$ > /tmp/waiter; echo 0x1 > db_event && echo heard"
    waiter = there.agent.start(line, SECONDS)
    guests.until(there, f"[ -e /tmp/waiter ] && {waits}")
    guests.run(here, f"{TOOL} echo 's 0x1' > peer_db")
    guests.until(there, f"({TOOL} [ $(cat db) = 0x1 ])")
    guests.run(there, waits)
    guests.run(there, f"{TOOL} echo 'c 0x1' > db_mask")
    guests.expect("who waited for a masked doorbell", waiter.wait().text.strip(), "heard")
    guests.run(there, f"{TOOL} echo 'c 0x1' > db")


def _scratchpads(guests: Guests, here: Vm, there: Vm) -> int:
    """Write all of the peer's; how many there are."""
    count = len(guests.run(there, f"{TOOL} ls -d spad*").split())
    each = f"for n in $(seq 0 {count - 1}); do"
    guests.run(here, f"{TOOL} {each} echo $((n * 7 + 1)) > peer0/spad$n; done")
    found = guests.run(there, f"{TOOL} {each} cat spad$n; done").split()
    wanted = [n * 7 + 1 for n in range(count)]
    guests.expect("scratchpads", [int(word, 16) for word in found], wanted)
    return count


def _windows(guests: Guests) -> int:
    """Bytes stored into each window are in the peer's memory; how many windows ntb_tool can open.

    It rounds sizes up to the alignment of addresses (tool_setup_mw), and the driver then refuses
    what is more than the window (intel_ntb_mw_set_trans).
    """
    line = f"{TOOL} for n in peer0/mw_trans*; do grep -E '^(Alignment|Size Max)' $n; done"
    words = guests.run(guests.machines[0], line).split()
    values = [int(word, 16) for word in words if word.startswith("0x")]
    usable = [
        number
        for number, (align, most) in enumerate(zip(values[::2], values[1::2], strict=True))
        if align <= most
    ]
    for window in usable:
        for way in guests.ways:
            _copy_through(guests, *way, window)
    return len(usable)


def _copy_through(guests: Guests, here: Vm, there: Vm, window: int) -> None:
    guests.run(there, f"{TOOL} echo 0 > peer0/mw_trans{window}")
    guests.run(there, f"{TOOL} echo {SIZE} > peer0/mw_trans{window}")
    sent = guests.run(here, fill(window))
    guests.expect(f"window {window}", guests.run(there, take(window)), sent)
    guests.expect(f"window {window}, closed", guests.run(here, look(window)), "f" * 16)


def fill(window: int) -> str:
    """Store random bytes into the peer's memory; prints their MD5."""
    # Stores are posted: a read behind them comes back when they have arrived.
    return (
        f"{TOOL} echo 0:{SIZE} > peer0/peer_mw_trans{window}; "
        f"head -c {SIZE} /dev/urandom > /tmp/sent; "
        f"dd if=/tmp/sent of=peer0/peer_mw{window} bs={SIZE} count=1 2> /dev/null; "
        f"head -c 8 peer0/peer_mw{window} > /dev/null; md5sum < /tmp/sent"
    )


def take(window: int) -> str:
    """Print the MD5 of what the peer has stored, and close the window."""
    close = f"echo 0 > peer0/mw_trans{window}"
    return f"{TOOL} head -c {SIZE} peer0/mw{window} | md5sum; {close}"


def look(window: int) -> str:
    """Print the first eight bytes that the peer shows, and give the mapping up."""
    # rmmod of ntb_tool oopses over a window that is still set up.
    close = f"echo 0:0 > peer0/peer_mw_trans{window}"
    return f"{TOOL} head -c 8 peer0/peer_mw{window} | od -An -tx1 | tr -d ' '; {close}"


def shared(session: Session) -> Sequence[Verdict]:
    """ntb_tool again, with ntb_hw_intel's b2b_mw_share=1: half of a BAR shows the registers."""
    guests = guests_of(session)
    guests.both("rmmod ntb_hw_intel && modprobe ntb_hw_intel b2b_mw_share=1")
    found = tool(session)
    guests.both("modprobe -r ntb_hw_intel && modprobe ntb_hw_intel")
    return found


def pace(session: Session) -> Sequence[Verdict]:
    """ntb_pingpong's counts rise on both sides by one every delay_ms."""
    guests = guests_of(session)
    load_both(guests, pingpong(_DELAY_MS))
    start, first = time.monotonic(), [int(guests.run(each, COUNT)) for each in guests.machines]
    for guest, count in zip(guests.machines, first, strict=True):
        guests.until(guest, f"[ $({COUNT}) -ge {count + 50} ]")
    seconds = time.monotonic() - start
    rises = [
        int(guests.run(each, COUNT)) - count
        for each, count in zip(guests.machines, first, strict=True)
    ]
    unload_both(guests, pingpong(_DELAY_MS))
    if max(rises) > (seconds + 2) * 1000 / _DELAY_MS:
        raise Unmet(f"{rises} rounds in {seconds:.1f} s of {_DELAY_MS} ms each")
    return [passed(f"{rises[0]} and {rises[1]} rounds of {_DELAY_MS} ms in {seconds:.1f} s")]


def interrupts(session: Session) -> Sequence[Verdict]:
    """ntb_msi_test: each of four interrupts through the window, counted one by one."""
    guests = guests_of(session)
    guests.both(MSI_TEST.load)
    a, b = guests.machines
    if guests.run(a, "ls /sys/kernel/debug/ntb_msi_test 2> /dev/null; true") == "":
        said = guests.messages(a, "MSI test")
        unload_both(guests, MSI_TEST)
        return refused(said)
    if not guests.model.spare_vectors:
        guests.until(b, "dmesg | grep -q 'Found .* interrupts on peer'")
        said = guests.messages(b, "interrupts on peer")
        unload_both(guests, MSI_TEST)
        return refused(f"{said}: the driver has handlers on all its vectors")
    guests.both(f"{MSI} echo 1 > peer0/ready")
    for here, there in guests.ways:
        guests.expect("interrupts of the peer", guests.run(here, f"{MSI} cat peer0/count"), "4")
        for index in range(4):
            _trigger(guests, here, there, index)
    unload_both(guests, MSI_TEST)
    return [passed(f"4 interrupts, {_TRIGGERS} of each counted, both ways")]


def _trigger(guests: Guests, here: Vm, there: Vm, index: int) -> None:
    """As edges are: two messages before the first is handled would be one interrupt."""
    shown = f"irq{index}_occurrences"
    before = int(guests.run(there, f"{MSI} cat {shown}"))
    for number in range(1, _TRIGGERS + 1):
        guests.run(here, f"{MSI} echo {index} > peer0/trigger")
        guests.until(there, f"({MSI} [ $(cat {shown}) -ge {before + number} ])")
    count = int(guests.run(there, f"{MSI} cat {shown}")) - before
    guests.expect(f"interrupts {index}", count, _TRIGGERS)
