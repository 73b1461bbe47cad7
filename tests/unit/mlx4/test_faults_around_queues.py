"""Faults by name of wire, memory, port, bus and of answers, as the control socket arms them."""

from __future__ import annotations

import pytest

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout.faults import Effect
from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import PORT_ACTIVE, PORT_DOWN, EventType
from bluebridge.device.layout.mlx4.faults import BY_NAME, FAULTS
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.pci.bus import DmaError, Presence
from bluebridge.device.pci.memory import PAGE_BYTES, GuestMemory
from bluebridge.device.server.control import ControlCommands
from tests.models.hca_driver import Driver
from tests.models.rdma_node import Pair, SendOpcode, data, remote
from tests.unit.mlx4.test_named_faults import arm, of

RETRY = CompletionStatus.TRANSPORT_RETRY_EXC_ERR


class Lab:
    """A connected pair, memory on each side, and the commands of its server."""

    def __init__(self) -> None:
        self.pair = Pair().connect()
        rules = FaultRules(self.pair.a.host.call_later, EventLog())
        rules.add_link("a/1", "a", self.pair.a.port, self.pair.fabric)
        self.commands = ControlCommands({"a": self.pair.a.hca, "b": self.pair.b.hca}, rules)
        self.source, self.lkey = self.pair.a.memory(PAGE_BYTES)
        self.target, self.rkey = self.pair.b.memory(PAGE_BYTES)
        self.pair.a.host.poke(self.source, b"bluebridge")

    def arm(self, line: str) -> int:
        """Arm a fault of adapter a and return its number."""
        return arm(self.commands, line)

    def write(self, seconds: float = 0.01) -> list[int]:
        """Write ten bytes from a to b; return the statuses that came within the time."""
        segments = remote(self.target, self.rkey) + data((self.lkey, self.source, 10))
        self.pair.a.post_send(self.pair.qa, SendOpcode.RDMA_WRITE, segments)
        self.pair.run(seconds)
        return [wc.status for wc in self.pair.a.completions(self.pair.qa)]

    def arrived(self) -> bytes:
        """The ten bytes at b."""
        return self.pair.b.host.peek(self.target, 10)


@pytest.fixture
def lab() -> Lab:
    """A pair."""
    return Lab()


def test_a_fault_of_the_wire_is_a_rule_of_the_link_and_ends_with_it(lab: Lab) -> None:
    number = lab.arm("wire-mute")
    assert lab.write() == []
    assert lab.commands.execute("armed a") == [
        f"{number} a wire-mute of 0x0: matched 1, taken 1",
        "ok",
    ]
    assert lab.commands.execute("rules")[0].startswith("1 a/1 drop direction=out: ")
    assert lab.commands.execute("disarm a") == ["ok"]
    assert lab.commands.execute("rules") == ["ok"]
    assert lab.arrived() == bytes(10)


def test_a_rule_that_was_removed_does_not_disturb_the_end_of_its_fault(lab: Lab) -> None:
    lab.arm("wire-dead")
    assert lab.commands.execute("remove all") == ["ok"]
    assert lab.commands.execute("disarm a") == ["ok"]
    assert lab.write() == [0]


def test_every_rule_of_the_catalogue_is_one(lab: Lab) -> None:
    wire = [fault.name for fault in FAULTS if fault.effect is Effect.WIRE]
    assert len(wire) > 20
    for name in wire:
        lab.arm(name)
    assert lab.commands.execute("disarm a") == ["ok"]
    assert lab.commands.execute("rules") == ["ok"]


def test_one_bit_of_a_payload_is_wrong_and_nobody_tells(lab: Lab) -> None:
    lab.arm("payload-flip")
    assert lab.write() == [0]
    assert lab.arrived() == b"cluebridge"
    assert lab.write() == [0]
    assert lab.arrived() == b"bluebridge"
    assert lab.pair.a.host.peek(lab.source, 10) == b"bluebridge"


def test_a_page_is_refused_until_the_fault_is_cleared(lab: Lab) -> None:
    lab.arm(f"dma-refused address={lab.source + 5:#x}")
    assert lab.write() == [CompletionStatus.LOCAL_PROT_ERR]
    assert lab.commands.execute("disarm a") == ["ok"]
    lab.pair.a.host.view(lab.source, PAGE_BYTES)


def test_pages_are_refused_across_maps_and_unmaps() -> None:
    memory = GuestMemory()
    memory.add(0, memoryview(bytearray(4 * PAGE_BYTES)))
    for page in (0, 2):
        memory.refuse(page * PAGE_BYTES, refused=True)
    memory.add(8 * PAGE_BYTES, memoryview(bytearray(PAGE_BYTES)))
    found = [at for at in range(9) if memory.stretch(at * PAGE_BYTES, 1) is not None]
    assert found == [1, 3, 8]
    with pytest.raises(DmaError):
        memory.read(PAGE_BYTES, PAGE_BYTES + 1)
    memory.remove(0)
    memory.refuse(0, refused=False)
    memory.refuse(2 * PAGE_BYTES, refused=False)
    assert [at for at in range(9) if memory.stretch(at * PAGE_BYTES, 1) is not None] == [8]


def test_a_key_permits_nothing_until_the_fault_is_cleared(lab: Lab) -> None:
    number = lab.arm(f"key-locked key={lab.lkey:#x}")
    assert lab.commands.execute(f"arm a key-locked key={lab.lkey:#x}")[0].startswith("error: ")
    assert lab.write() == [CompletionStatus.LOCAL_PROT_ERR]
    assert lab.commands.execute(f"disarm a {number}") == ["ok"]
    region = lab.pair.a.hca.adapter.regions
    assert list(region.resolve(lab.lkey, lab.source, 1, 0, 1))


def test_a_port_is_down_until_the_fault_is_cleared_and_tells_both_times(lab: Lab) -> None:
    lab.pair.a.events(EventType.PORT_CHANGE)
    number = lab.arm("port-down")
    assert not lab.pair.a.hca.adapter.ports[0].link_up
    assert lab.commands.execute(f"disarm a {number}") == ["ok"]
    found = [event["subtype"] for event in lab.pair.a.events(EventType.PORT_CHANGE)]
    assert found == [PORT_DOWN, PORT_ACTIVE]


def test_nothing_passes_an_active_port_for_a_while(lab: Lab) -> None:
    assert lab.commands.execute("arm a port-late ms=100") == ["ok"]
    lab.pair.run(0.15)
    assert lab.pair.a.hca.adapter.ports[0].link_up
    assert lab.write() == []
    lab.pair.run(0.1)
    assert lab.commands.execute("rules") == ["ok"]
    assert lab.commands.execute("armed") == ["ok"]


def test_a_gid_vanishes_and_comes_back(lab: Lab) -> None:
    port, tables = lab.pair.a.port, lab.pair.a.tables
    before = list(tables.gids)
    index = next(at for at, gid in enumerate(before) if gid != NO_GID)
    lab.arm(f"gid-vanishes index={index}")
    assert tables.gids[index] == NO_GID
    assert lab.commands.execute("disarm a") == ["ok"]
    assert list(tables.gids) == before
    lab.arm(f"gid-vanishes index={index}")
    tables.gids = []
    port.sources_changed()
    assert lab.commands.execute("disarm a") == ["ok"]
    assert list(tables.gids) == [], "software has set the table anew"


def presence(lab: Lab) -> Presence:
    """Return what of adapter a answers."""
    return lab.pair.a.host.presence


def test_a_function_resets_by_itself_or_goes_and_comes_back(lab: Lab) -> None:
    assert lab.commands.execute("arm a function-reset") == ["ok"]
    number = lab.arm("surprise-removal")
    assert presence(lab) is Presence.GONE
    assert lab.commands.execute("arm a registers-lost")[0].startswith("error: the function")
    assert lab.commands.execute(f"disarm a {number}") == ["ok"]
    assert presence(lab) is Presence.HERE
    lab.arm("registers-lost")
    assert presence(lab) is Presence.NO_REGISTERS


def answer(driver: Driver) -> bytes:
    """Return what QUERY_DEV_CAP answers."""
    driver.post(Opcode.QUERY_DEV_CAP, out_param=driver.mailbox_out)
    return driver.host.peek(driver.mailbox_out, QUERY_DEV_CAP.size)


def test_a_command_is_answered_wrongly() -> None:
    driver = Driver().start()
    commands = of(driver)
    before = answer(driver)
    assert commands.execute("arm a short-cqs") == ["1", "ok"]
    after = answer(driver)
    assert QUERY_DEV_CAP.get(after, "log_max_cqes") == 9
    changed = [at for at in range(len(before)) if before[at] != after[at]]
    assert changed == [QUERY_DEV_CAP.field("log_max_cqes").offset]
    assert commands.execute("disarm a") == ["ok"]
    assert answer(driver) == before


def test_every_answer_of_the_catalogue_fits() -> None:
    driver = Driver().start()
    commands = of(driver)
    for fault in FAULTS:
        if fault.effect is Effect.COMMAND_WRONG and not fault.needs:
            assert commands.execute(f"arm a {fault.name}")[-1] == "ok", fault.name
    assert len(BY_NAME) >= 100


@pytest.mark.parametrize(
    "line",
    [
        "command-wrong opcode=NOP field=link_up value=0",
        "command-wrong opcode=QUERY_PORT field=frob value=0",
        "command-wrong opcode=QUERY_PORT field=link_up value=2",
        "command-wrong opcode=QUERY_PORT field=link_up", "short-cqs value=-1",
        "dma-refused", "dma-refused address=x", "key-locked key=0xffff00", "key-locked key=-1",
        "gid-vanishes index=4000", "wire-dead count=1", "port-late", "port-late ms=600001",
        "surprise-removal ms=1",
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_nothing_is_half_armed(lab: Lab, line: str) -> None:
    (said,) = lab.commands.execute(f"arm a {line}")
    assert said.startswith("error: ")
    assert lab.commands.execute("armed") == ["ok"]
    assert lab.commands.execute("rules") == ["ok"]
    assert lab.write() == [0]
