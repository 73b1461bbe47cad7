"""Both Python drivers over a device that refuses to make an object, or was reset by others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bluebridge.device.cards import CARDS, CONNECTX3, CONNECTX5
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import QpType
from bluebridge.guest.verbs.values import QpInit
from bluebridge.host_tools.lab.hardware import tell
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.server import devices

CONNECTX3_MAKES = {
    "SW2HW_CQ": lambda device, domain, cq: device.create_cq(64),
    "SW2HW_EQ": lambda device, domain, cq: device.create_comp_channel(),
    "SW2HW_SRQ": lambda device, domain, cq: domain.create_srq(64),
    "SW2HW_MPT": lambda device, domain, cq: domain.alloc_fast_reg_mr(8),
}
CONNECTX5_MAKES = {
    "CREATE_CQ": lambda device, domain, cq: device.create_cq(64),
    "CREATE_EQ": lambda device, domain, cq: device.create_comp_channel(),
    "CREATE_RMP": lambda device, domain, cq: domain.create_srq(64),
    "CREATE_MKEY": lambda device, domain, cq: domain.alloc_fast_reg_mr(8),
    "CREATE_QP": lambda device, domain, cq: domain.create_qp(QpInit(QpType.RC, cq, cq, 8, 8)),
    "CREATE_SQ": lambda device, domain, cq: domain.create_qp(QpInit(QpType.RAW_ETH, cq, cq, 8, 8)),
    "CREATE_TIR": lambda device, domain, cq: domain.create_qp(QpInit(QpType.RAW_ETH, cq, cq, 8, 8)),
}
MAKES: list[Any] = [
    pytest.param(card.name, opcode, make, id=f"{card.name}-{opcode}")
    for card, makes in ((CONNECTX3, CONNECTX3_MAKES), (CONNECTX5, CONNECTX5_MAKES))
    for opcode, make in makes.items()
]
"""Ways to make an object of a card, with the command that makes it."""
WITH_PAGES: dict[str, Callable[..., object]] = {
    **{name: make for name, make in CONNECTX3_MAKES.items() if name != "SW2HW_MPT"},
    "RST2INIT_QP": CONNECTX5_MAKES["CREATE_QP"],
}
"""Ways to make an object of a ConnectX-3 with a list of pages, and the command that takes it."""
REFUSED = {"connectx3": "EXCEED_LIM", "connectx5": "LIM_ERR"}
TIMES = 20
"""More often than there are vectors."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The folder of a server of each card, with its sockets."""
    with contextlib.ExitStack() as stack:
        found = {name: tmp_path_factory.mktemp(name) for name in CARDS}
        for name, folder in found.items():
            stack.enter_context(devices(folder, "--card", name))
        yield found


@pytest.mark.parametrize(("card", "opcode", "make"), MAKES)
def test_what_could_not_be_made_keeps_nothing(
    folders: dict[str, Path], card: str, opcode: str, make: Callable[..., object]
) -> None:
    """Neither memory nor numbers nor a vector; then it can be made."""
    folder = folders[card]
    with contextlib.closing(SocketBus(folder / "a")) as bus, open_device(bus) as device:
        domain, cq = device.alloc_pd(), device.create_cq(16)
        domain.alloc_fast_reg_mr(1).close()
        before = bus.available()
        for _ in range(TIMES):
            tell(folder / "control", f"arm a command-fails opcode={opcode} status={REFUSED[card]}")
            with pytest.raises(VerbsError, match=opcode):
                make(device, domain, cq)
            assert bus.available() == before
            tell(folder / "control", "disarm a")
        make(device, domain, cq)


@pytest.mark.parametrize("opcode", WITH_PAGES)
def test_without_entries_for_pages_nothing_is_kept(folders: dict[str, Path], opcode: str) -> None:
    make = WITH_PAGES[opcode]
    folder = folders["connectx3"]
    with contextlib.closing(SocketBus(folder / "a")) as bus, open_device(bus) as device:
        domain, cq = device.alloc_pd(), device.create_cq(16)
        icm: Any = device.adapter.icm  # type: ignore[attr-defined]
        pages, taken = 1 << 24, []
        while pages:
            try:
                taken.append(icm.allocate_mtt(range(0, pages * 4096, 4096)))
            except VerbsError:
                pages >>= 1
        before = bus.available()
        for _ in range(TIMES):
            with pytest.raises(VerbsError, match="MTT"):
                make(device, domain, cq)
            assert bus.available() == before
        for each in taken:
            icm.free_mtt(each)
        make(device, domain, cq)


@pytest.mark.parametrize("card", CARDS)
def test_a_reset_by_others_is_no_end(folders: dict[str, Path], card: str) -> None:
    """The device closes and keeps nothing; the bus is good for another one."""
    with contextlib.closing(SocketBus(folders[card] / "a")) as bus:
        before = bus.available()
        device = open_device(bus)
        tell(folders[card] / "control", "arm a function-reset")
        with pytest.raises(VerbsError):
            device.query_port()
        device.close()
        assert bus.available() == before
        for _ in range(2):
            with open_device(bus) as device:
                assert device.create_cq(16).poll() == []


@pytest.mark.parametrize("card", CARDS)
def test_a_closed_channel_is_forgotten(folders: dict[str, Path], card: str) -> None:
    with contextlib.closing(SocketBus(folders[card] / "a")) as bus, open_device(bus) as device:
        kept = device.create_comp_channel()
        for _ in range(TIMES):
            device.create_comp_channel().close()
        assert device.channels == [kept]  # type: ignore[attr-defined]
        kept.close()
        kept.close()
        assert device.channels == []  # type: ignore[attr-defined]
