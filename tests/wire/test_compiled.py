"""Builds of the server: compiled or interpreted, it is one device; its libvfio-user."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from random import Random

import pytest

from bluebridge.compiled import PURE
from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.buslog.record import META_NAME
from bluebridge.device.pyvfio_user import Context, Library, LibraryError, load
from bluebridge.device.pyvfio_user._library import SHIM, read_layout
from bluebridge.guest.verbs import (
    AccessFlags,
    QpInit,
    QpType,
    RecvWr,
    SendFlags,
    SendWr,
    Sge,
    WrOpcode,
)
from bluebridge.hot_modules import DEVICE
from bluebridge.images.cache import HOME
from tests.models.players import driven
from tests.models.server import devices

ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ
PSN = 0xFFFFF0
TEARDOWN = "CLOSE_HCA"
SIZES = (0, 1, 8, 64, 100, 1024, 4096, 20000)
PAGE = 4096
PAGES = 300
"""Of a region whose pages are no neighbours, with more of them than the log has one by one."""
APART = ((0, 0, 2 * PAGE), (5, 4000, 5 * PAGE), (0, 0, 256 * PAGE), (77, 1, 299 * PAGE))
"""Messages there: where they begin, where they go, their length."""


def _session(folder: Path) -> list[tuple[object, ...]]:
    """Return what a fixed sequence of bring-up, messages and a refusal leaves in the log.

    Without times: those of the records, and how long a command took. It ends where a client closes
    its adapter: the server sees in any order that one has left and what the other does next.
    """
    folder.mkdir()
    with devices(folder, "--capture", "100000"):
        _traffic(folder)
    reader = LogReader(folder / "log")
    events = takewhile(lambda event: event.values.get("name") != TEARDOWN, reader)
    return [_timeless(event) for event in events]


def _timeless(event: Event) -> tuple[object, ...]:
    values = event.device, event.kind, event.bar, event.what, event.obj, event.address, event.work
    if event.fact is not None:
        fields = event.fact.fields.items()
        return *values, *(event.values[name] for name, form in fields if not form.varies)
    return *values, event.length, event.data


def _traffic(folder: Path) -> None:
    chance = Random(1)  # the same numbers and keys in both sessions
    with driven(folder, chance=chance) as (a, b):
        ends, apart = [], []
        for context in (a, b):
            pd = context.alloc_pd()
            cq = context.create_cq(64)
            qp = pd.create_qp(QpInit(QpType.RC, cq, cq, 32, 32))
            memory = context.allocate(max(SIZES))
            mr = pd.reg_mr(memory.address, max(SIZES), access=ACCESS)
            ends.append((context, cq, qp, memory, mr))
            block = context.allocate(2 * PAGES * PAGE)
            block.view[:] = chance.randbytes(2 * PAGES * PAGE)
            pages = [block.address + 2 * number * PAGE for number in range(PAGES)]
            chance.shuffle(pages)
            apart.append(pd.reg_mr(pages, PAGES * PAGE, 0, access=ACCESS))
        for (here, _, qp, _, _), (there, _, other, _, _) in (ends, ends[::-1]):
            qp.modify_init(ACCESS)
            route = here.address_vector(there.address)
            qp.modify_rtr(route, other.qpn, PSN, min_rnr_timer=1)
            qp.modify_rts(PSN)
        (_, cq, qp, memory, mr), (_, peer_cq, peer, target, target_mr) = ends
        for size in SIZES:
            for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND):
                if opcode is WrOpcode.SEND:
                    peer.post_recv(RecvWr(7, [Sge(target.address, max(SIZES), target_mr.lkey)]))
                wr = SendWr(1, opcode, [Sge(memory.address, size, mr.lkey)], SendFlags.SIGNALED)
                wr.remote_addr, wr.rkey = target.address, target_mr.rkey
                qp.post_send(wr)
                while not cq.poll(1):
                    pass
        for inside, target_at, size in APART:
            for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND):
                if opcode is WrOpcode.SEND:
                    peer.post_recv(RecvWr(7, [Sge(target_at, size, apart[1].lkey)]))
                wr = SendWr(1, opcode, [Sge(inside, size, apart[0].lkey)], SendFlags.SIGNALED)
                wr.remote_addr, wr.rkey = target_at, apart[1].rkey
                qp.post_send(wr)
                while not cq.poll(1):
                    pass
        while peer_cq.poll(8):
            pass
        wrong = SendWr(2, WrOpcode.RDMA_WRITE, [Sge(memory.address, 8, mr.lkey)])
        wrong.remote_addr, wrong.rkey = target.address, target_mr.rkey ^ 0x100
        qp.post_send(wrong)
        while not cq.poll(1):
            pass


def test_the_log_is_the_same_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PURE, raising=False)
    compiled = _session(tmp_path / "compiled")
    monkeypatch.setenv(PURE, "1")
    pure = _session(tmp_path / "pure")
    codes = [
        json.loads((tmp_path / kind / "log" / META_NAME).read_text())["code"]
        for kind in ("compiled", "pure")
    ]
    assert codes == ["compiled" if DEVICE.build() else "pure", "pure"]
    assert len(compiled) > 500
    assert compiled == pure


def test_an_exception_names_file_and_line() -> None:
    code = (
        "from bluebridge.device.pci.memory import GuestMemory\n"
        "memory = GuestMemory()\n"
        "memory.view(0x1000, 4)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HOME, capture_output=True, text=True, check=False
    )
    lines = (HOME / "device/pci/memory.py").read_text().splitlines()
    wanted = 1 + next(n for n, line in enumerate(lines) if "raise DmaError(address, len" in line)
    assert f'device/pci/memory.py", line {wanted}, in _find' in done.stderr
    assert "no guest memory at 0x1000 for 4 bytes" in done.stderr


def test_layouts_agree(vfio_user_library: Path) -> None:
    library = load()
    real = read_layout(vfio_user_library.with_name(SHIM))
    assert library.expected_layout().items() <= real.items()
    assert len(library.expected_layout()) > 30


def test_another_layout_is_refused_in_one_line(vfio_user_library: Path, tmp_path: Path) -> None:
    shutil.copy(vfio_user_library, tmp_path / "libvfio-user.so")
    source = tmp_path / "shim.c"
    source.write_text(
        "struct entry { const char *name; unsigned long value; };\n"
        'static const struct entry entries[] = {{"sizeof(vfu_dma_info_t)", 4}, {0, 0}};\n'
        "const struct entry *pvu_layout(void) { return entries; }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / SHIM, source], check=True)
    with pytest.raises(LibraryError, match=r"sizeof\(vfu_dma_info_t\) is 4, 56 expected") as caught:
        Library(tmp_path / "libvfio-user.so")
    assert "\n" not in str(caught.value)


def test_without_the_shim_nothing_is_trusted(vfio_user_library: Path, tmp_path: Path) -> None:
    shutil.copy(vfio_user_library, tmp_path / "libvfio-user.so")
    with pytest.raises(LibraryError, match="no layout check"):
        Library(tmp_path / "libvfio-user.so")


def test_close_is_idempotent_and_removes_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Context(path) as context:
        assert path.exists() and context.detached
        assert context.run() == 0
        assert not context.trigger(0)
    context.close()
    assert not path.exists()
