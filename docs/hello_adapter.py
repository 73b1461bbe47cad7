"""Brings a ConnectX-3 up from the tables in device/layout, and writes a word over a loop.

    python docs/hello_adapter.py [FOLDER]
    python3 hello_adapter.py --guest            # in a guest of `bluebridge up`

No driver is used: the program starts a device server, stores to the registers of its HCA as the
kernel of a guest would, and leaves the bus log in FOLDER/log. docs/hello-adapter.md explains it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx4 import bar0, uar
from bluebridge.device.layout.mlx4.capabilities import (
    INIT_HCA,
    MAC_VALID,
    QUERY_DEV_CAP,
    QUERY_FW,
    QUERY_PORT,
)
from bluebridge.device.layout.mlx4.commands import MAX_MAP_ENTRIES, Opcode, SetPort, Status
from bluebridge.device.layout.mlx4.contexts import CQC, EQC, MAP_ENTRY, MPT, QPC, WRITE_MTT
from bluebridge.device.layout.mlx4.cqe import CQE
from bluebridge.device.layout.mlx4.eqe import EQE, EventType
from bluebridge.device.layout.mlx4.wqe import CQE_REQUEST, CTRL, DATA, RADDR, SendOpcode
from bluebridge.guest.bus.interface import Bus, DmaMemory

WORDS = b"hello, adapter"
LOGS = {"qps": 7, "srqs": 4, "cqs": 8, "eqs": 3, "mpts": 5}
"""Sizes of tables: the numbers that QUERY_DEV_CAP reserves, and a few more."""
EQN, CQN, QPN, MPT_INDEX, PD, PAGE = 4, 0x80, 0x48, 17, 1, 4096
KEY = MPT_INDEX << 8  # of the region, as work requests name it
GID = bytes(10) + b"\xff\xff" + bytes((10, 0, 0, 1))


class Adapter:
    """The host command register (tables HCR, Opcode, Status) and what is allocated behind it."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.question, self.answer = bus.allocate(PAGE), bus.allocate(PAGE)
        self.mtt = 0x100  # next free byte of the MTT; its first entries are reserved
        bus.write32(0, bar0.RESET_OFFSET, bar0.RESET_VALUE)

    def command(
        self, opcode: Opcode, data: bytes | int = 0, modifier: int = 0, form: int = 0, go: int = 0
    ) -> int:
        """Store the seven words, wait until GO is clear: the immediate output."""
        if not isinstance(data, int):
            self.question.view[: len(data)] = data
            data = self.question.address
        out = self.answer.address
        words = (data >> 32, data & 0xFFFFFFFF, modifier, out >> 32, out & 0xFFFFFFFF, 0)
        for place, word in enumerate((*words, bar0.HCR_GO | go | form << 12 | opcode)):
            self.bus.write32(0, bar0.HCR_BASE + 4 * place, word)
        while (control := self.bus.read32(0, bar0.HCR_BASE + 0x18)) & bar0.HCR_GO:
            pass
        if control >> 24:
            raise SystemExit(f"{opcode.name}: {Status(control >> 24).name}")
        return self.bus.read32(0, bar0.HCR_BASE + 0x10)

    def query(self, opcode: Opcode, modifier: int = 0) -> bytes:
        """A command that fills the output mailbox."""
        self.command(opcode, 0, modifier)
        return bytes(self.answer.view)

    def lend(self, opcode: Opcode, pages: int, virtual: int = 0) -> None:
        """Give the adapter memory: one MAP_ENTRY for each page."""
        start = self.bus.allocate(pages * PAGE).address
        entries = [
            bytes(MAP_ENTRY.pack(virtual=virtual + at, page=start + at >> 12))
            for at in range(0, pages * PAGE, PAGE)
        ]
        for first in range(0, pages, MAX_MAP_ENTRIES):
            part = entries[first : first + MAX_MAP_ENTRIES]
            self.command(opcode, b"".join(part), len(part))

    def ring(self, length: int) -> tuple[DmaMemory, int]:
        """Memory for a queue, and where the MTT has its page (WRITE_MTT)."""
        memory, place = self.bus.allocate(length), self.mtt
        entry = (memory.address | 1).to_bytes(8, "big")
        self.command(Opcode.WRITE_MTT, bytes(WRITE_MTT.pack(offset=place)) + entry, 1)
        self.mtt += 8
        return memory, place


def start(adapter: Adapter) -> None:
    """Memory for the firmware, memory for its tables, INIT_HCA."""
    adapter.lend(Opcode.MAP_FA, QUERY_FW.get(adapter.query(Opcode.QUERY_FW), "fw_pages"))
    adapter.command(Opcode.RUN_FW)
    offered = adapter.query(Opcode.QUERY_DEV_CAP)
    print(f"up to 2**{QUERY_DEV_CAP.get(offered, 'log_max_qps')} queue pairs, we take 2**7")
    tables = {"qpc": 15, "altc": 13, "auxc": 13, "rdmarc": 16, "srqc": 12, "cqc": 14, "eqc": 12}
    bases, virtual, lent = {}, 1 << 32, []  # the cMPT's four parts stand below, 1 GiB each
    for name, log in {**tables, "mc": 13, "dmpt": 12, "mtt": 12}.items():
        bases[f"{name}_base"] = virtual
        lent.append((virtual, (1 << log) // PAGE))
        virtual += 1 << 16
    adapter.lend(Opcode.MAP_ICM_AUX, adapter.command(Opcode.SET_ICM_SIZE, virtual))
    for place, pages in lent + [(kind << 30, 4) for kind in range(4)]:
        adapter.lend(Opcode.MAP_ICM, pages, place)
    sizes = {f"log_{name}": log for name, log in LOGS.items()}
    values: dict[str, Value] = {"version": 2, "log_rd_per_qp": 4, "log_uars": 11}
    values |= {"log_mc_entry_size": 6, "log_mc_hash_size": 3, "log_mc_table_size": 4}
    # the low bits of a base hold a logarithm, so the bases come first
    adapter.command(Opcode.INIT_HCA, bytes(INIT_HCA.pack({**bases, **values, **sizes})))


def events(adapter: Adapter) -> None:
    """An event queue: the port comes up, a command tells of its end."""
    ring, place = adapter.ring(32 * 16)
    context = EQC.pack(state=9, log_size=4, mtt_addr=place)
    adapter.command(Opcode.SW2HW_EQ, bytes(context), EQN)
    adapter.command(Opcode.MAP_EQ, 1 << EventType.CMD | 1 << EventType.PORT_CHANGE, EQN)
    mac = QUERY_PORT.get(adapter.query(Opcode.QUERY_PORT, 1), "mac")
    table = (MAC_VALID | mac).to_bytes(8, "big").ljust(1024, b"\0")
    adapter.command(Opcode.SET_PORT, table, SetPort.MAC_TABLE << 8 | 1, 1)
    adapter.command(Opcode.SET_PORT, GID.ljust(2048, b"\0"), SetPort.GID_TABLE << 8 | 1, 1)
    adapter.command(Opcode.INIT_PORT, 0, 1)
    adapter.command(Opcode.NOP, go=bar0.HCR_EVENT)
    for index in range(16):
        entry = bytes(ring.view[32 * index : 32 * index + 32])
        if EQE.get(entry, "owner"):  # the adapter's: nothing was written there on this lap
            break
        print(f"event {EventType(EQE.get(entry, 'type')).name}")
    adapter.bus.write32(2, uar.eq_doorbell_offset(EQN), uar.EQ_ARM | index)


def hello(adapter: Adapter) -> None:
    """A region, a completion queue, a queue pair connected to itself, one RDMA WRITE."""
    everything = MPT.pack(region=1, physical=1, local_read=1, local_write=1, remote_write=1)
    for name, value in {"key": MPT_INDEX, "pd": PD, "length": (1 << 64) - 1}.items():
        MPT.set(everything, name, value)
    adapter.command(Opcode.SW2HW_MPT, bytes(everything), MPT_INDEX)
    completions, place = adapter.ring(32 * 4)
    record, source, target = (adapter.bus.allocate(PAGE) for _ in range(3))
    context = CQC.pack(log_size=2, uar=128, eqn=EQN, mtt_addr=place)
    CQC.set(context, "doorbell_record", record.address)
    adapter.command(Opcode.SW2HW_CQ, bytes(context), CQN)
    sends, place = adapter.ring(64 * 4)
    mac = QUERY_PORT.get(adapter.query(Opcode.QUERY_PORT, 1), "mac").to_bytes(6, "big")
    values: dict[str, Value] = {"pd": PD, "uar": 128, "cqn_send": CQN, "cqn_recv": CQN}
    values |= {"log_sq_size": 2, "log_sq_stride": 2, "mtt_addr": place, "mtu": 3, "msg_max": 30}
    values |= {"remote_write": 1, "remote_qpn": QPN, "pri_dmac": mac, "pri_rgid": GID}
    values |= {"pri_sched_queue": 0x83, "pri_ack_timeout": 14, "retry_count": 7}
    mailbox = bytes(8) + bytes(QPC.pack(values))  # the mask of optional parameters comes first
    for step in (Opcode.RST2INIT_QP, Opcode.INIT2RTR_QP, Opcode.RTR2RTS_QP):
        adapter.command(step, mailbox, QPN)
    source.view[: len(WORDS)] = WORDS
    flags = {"opcode": SendOpcode.RDMA_WRITE, "ds": 3, "cqe": CQE_REQUEST >> 2}
    entry = CTRL.pack(flags) + RADDR.pack(va=target.address, rkey=KEY)
    entry += DATA.pack(byte_count=len(WORDS), lkey=KEY, va=source.address)
    for slot in range(1, 4):
        sends.view[64 * slot] = 0x80  # not yet posted, as this lap's ownership bit says
    sends.view[: len(entry)] = entry
    adapter.bus.write32(2, 128 * PAGE + uar.SEND_DOORBELL, uar.send_doorbell(QPN))
    while CQE.get(completions.view, "owner"):  # until the adapter has written the first entry
        pass
    assert CQE.get(completions.view, "opcode") == SendOpcode.RDMA_WRITE
    print(bytes(target.view[: len(WORDS)]).decode())


def say(bus: Bus) -> None:
    """All steps, on any way to the registers of an HCA that nobody else uses."""
    adapter = Adapter(bus)
    for step in (start, events, hello):
        step(adapter)


def serve(folder: Path) -> None:
    """Serve one HCA, say hello to it."""
    from bluebridge.device.pyvfio_user import ENVIRONMENT
    from bluebridge.host_tools.vfio_user.bus import SocketBus
    from bluebridge.images.artefacts import Artefacts

    words = ["--hca", f"name=a,socket={folder / 'a'}", "--log", str(folder / "log")]
    command = [sys.executable, "-m", "bluebridge.device", *words]
    library = os.environ.get(ENVIRONMENT) or str(Artefacts().libvfio_user())
    environment = {**os.environ, ENVIRONMENT: library}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        try:
            say(SocketBus(folder / "a"))
        finally:
            server.terminate()


if __name__ == "__main__":
    if "--guest" in sys.argv:  # in a guest whose HCA is bound to vfio-pci
        from bluebridge.guest.bus.machine import open_bus

        say(open_bus())
    else:
        serve(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
