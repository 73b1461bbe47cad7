"""The user-space drivers of bridge and DMA engine over VFIO, in two guests."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.server.options import BridgeOptions
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.lab import Lab

SECONDS = 120.0
ROUNDS = 200
BEGIN = """
import hashlib, sys
from bluebridge.guest.drivers.dma import ChannelHalted, open_engine
from bluebridge.guest.drivers.ntb import open_bridge
bridge, engine = open_bridge(), open_engine()
mine, MIB = bridge.allocate(1 << 20), 1 << 20
bridge.windows[0].set_translation(mine.address, MIB)
bridge.unmask(6)
bridge.enable_link()
bridge.wait_link(timeout=60)
"""
END = "engine.close(); bridge.close()\n"
TELL = """
bridge.set_peer_spad(0, mine.address & 0xFFFFFFFF)
bridge.set_peer_spad(1, mine.address >> 32)
bridge.ring(2)
assert bridge.wait_rung(4, 60) == 4          # a has stored
print(hashlib.md5(mine.view).hexdigest())
bridge.ring(4)
assert not bridge.wait_link(up=False, timeout=60).up
"""
STORE = """
assert bridge.wait_rung(2, 60) == 2
there = bridge.spad(0) | bridge.spad(1) << 32
data, window = bytes(n * n % 251 for n in range(256)) * (MIB // 256), bridge.windows[1]
window.memory[there : there + MIB] = data
assert window.load(there, 64) == data[:64]
bridge.ring(4)
assert bridge.wait_rung(4, 60) == 4
print(hashlib.md5(data).hexdigest())
engine.channels[0].wait(engine.channels[0].copy(window.address + there, mine.address, MIB), 60)
print(hashlib.md5(mine.view).hexdigest())
"""
SERVED = """
assert bridge.wait_rung(2, 60) == 2          # a: scratchpads and window are written
print([bridge.spad(n) for n in range(16)], bytes(mine.view[:12]).decode())
for n in range(16): bridge.set_peer_spad(n, 100 + n)
bridge.ring(2)
assert bridge.wait_rung(4, 60) == 4          # a: the copy is done
print(hashlib.md5(mine.view).hexdigest())
bridge.ring(4)
assert not bridge.wait_link(up=False, timeout=60).up
"""
SERVING = """
for n in range(16): bridge.set_peer_spad(n, 10 * n)
bridge.windows[0].store(0, b"by processor")
assert bridge.windows[0].load(0, 12) == b"by processor"
bridge.ring(2)
assert bridge.wait_rung(2, 60) == 2
print([bridge.spad(n) for n in range(16)])
data = engine.allocate(MIB)
data.view[:] = bytes(n * n % 251 for n in range(256)) * (MIB // 256)
channel = engine.channels[0]
channel.wait(channel.copy(data.address, bridge.windows[0].address, MIB, interrupt=True), 60)
bridge.ring(4)
assert bridge.wait_rung(4, 60) == 4
print(hashlib.md5(data.view).hexdigest())
try:
    channel.wait(channel.copy(0x7000000000, data.address, 64, interrupt=True), 60)
except ChannelHalted as error:
    print(error)
channel.reset()
channel.wait(channel.copy(data.address, data.address + 64, 64, interrupt=True), 60)
"""


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Iterator[Pair]:
    """Guests whose bridge and engine vfio-pci has."""
    with lab.pair(hca=False, bridge=BridgeOptions("intel-gen4")) as found:
        yield found


def _both(pair: Pair, lines: dict[str, str]) -> dict[str, list[str]]:
    """Run a line in each guest at once; what each printed."""
    said = {}

    def run(guest: Vm) -> None:
        said[guest.name] = guest.run(lines[guest.name], timeout=SECONDS).text.splitlines()

    pair.both(run)
    return said


def _sides(pair: Pair, a: str, b: str) -> dict[str, list[str]]:
    """Run both programs at once; what each printed."""
    for guest, part in ((pair.a, a), (pair.b, b)):
        guest.run(["sh", "-c", f"cat > /tmp/side.py <<'E'\n{BEGIN}{part}{END}E"])
    return _both(pair, dict.fromkeys("ab", "python3 /tmp/side.py"))


@pytest.mark.brief
def test_link_scratchpads_doorbells_and_a_mebibyte_by_dma(pair: Pair) -> None:
    said = _sides(pair, SERVING, SERVED)
    here, there = said["a"], said["b"]
    assert there[0] == f"{[10 * n for n in range(16)]} by processor"
    assert here[0] == str([100 + n for n in range(16)])
    assert here[1] == there[1] and len(here[1]) == 32
    assert here[2].startswith("channel 0 has halted (READ_DATA): 64 bytes from 0x7000000000")


@pytest.mark.brief
def test_the_command_plays_ping_pong(pair: Pair) -> None:
    line = f"python3 -m bluebridge.guest.drivers.ntb pingpong --count {ROUNDS} --json"
    said = _both(pair, dict.fromkeys("ab", line))
    for guest in "ab":
        times = json.loads(said[guest][-1])
        assert 0 < times["interrupt"]["min"] <= times["interrupt"]["p50"]
        assert 0 < times["doorbell"]["min"] <= times["doorbell"]["p50"]
        assert 0 < times["dma"]["min"] <= times["dma"]["p50"] <= times["dma"]["p99"]
        print(guest, times)


def test_the_command_shows_and_watches(pair: Pair) -> None:
    """One process in a for all of its commands, since each start of Python takes a second."""
    pair.b.run(
        "python3 -m bluebridge.guest.drivers.ntb watch > /tmp/watch.log & "
        "echo $! > /tmp/watch.pid; "
        "until grep -q link /tmp/watch.log; do sleep 0.1; done",
        timeout=SECONDS,
    )
    words = ["show", "spad 3 0x1234", "ring 5 31", "store 0 hello"]
    line = "; ".join(f"main({word.split()})" for word in words)
    shown = pair.a.run(
        ["python3", "-c", f"from bluebridge.guest.drivers.ntb.__main__ import main; {line}"],
        timeout=SECONDS,
    ).text
    assert "intel-gen4, port 0 of 2; link up, 16 GT/s x8" in shown
    assert "the peer's scratchpad 3 is 0x1234" in shown
    assert "the peer has answered doorbells 0x80000020" in shown
    assert "5 bytes are in the peer's memory" in shown
    for news in ("link up", "scratchpad 3: 0x1234", "doorbells 0x", "b'hello"):
        pair.b.run(f'until grep -qF "{news}" /tmp/watch.log; do sleep 0.1; done', timeout=SECONDS)
    pair.b.run("P=$(cat /tmp/watch.pid); kill $P; while kill -0 $P; do sleep 0.05; done")
    alone = "python3 -m bluebridge.guest.drivers.ntb --wait 0 pingpong"
    done = pair.b.run(alone, timeout=SECONDS, check=False)
    assert done.status == 1
    assert done.stderr.decode().strip() == "ntb: the link stays down (is the peer's driver up?)"


def test_a_window_that_is_the_peer_s_memory(lab: Lab) -> None:
    """The processor's stores go there without the server; its engine and the log know the same."""
    options = BridgeOptions("intel-gen4", bar_sizes="ntrdma", window_alias=True)
    with lab.pair(hca=False, bridge=options) as pair:
        said = _sides(pair, STORE, TELL)
        assert said["a"][0] == said["b"][0] == said["a"][1]
        stores = [
            event
            for event in LogReader(pair.logs).tail()
            if event.kind is Kind.MMIO_WRITE and event.bar == 4
        ]
        assert not stores
        with pytest.raises(UsageError, match="cannot be restarted alone"):
            pair.restart("a")
