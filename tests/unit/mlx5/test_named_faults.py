"""Faults by name of a ConnectX-5, as the control socket arms them: what its software sees."""

from __future__ import annotations

import pytest

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.faults import PARAMETERS
from bluebridge.device.layout.mlx4 import faults as mlx4
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.cqe import CQE, ERROR_CQE, VENDOR_SYNDROMES, CqeOpcode, Syndrome
from bluebridge.device.layout.mlx5.event_queues import (
    CQ_ERROR_EQE,
    EQE,
    PORT_EQE,
    QUEUE_EQE,
    EventType,
)
from bluebridge.device.layout.mlx5.faults import BY_NAME, FAULTS
from bluebridge.device.mlx5.device import Hca
from bluebridge.device.server.control import ControlCommands
from tests.models.fake_host import FakeHost
from tests.models.mlx5_driver import Mlx5Driver
from tests.models.mlx5_node import VECTOR, Mlx5Node, mac_of, opcode_of, syndrome_of


def of(hca: Hca, host: FakeHost) -> ControlCommands:
    """Return the commands of the control socket of an adapter called a."""
    return ControlCommands({"a": hca}, FaultRules(host.call_later, EventLog()))


def arm(commands: ControlCommands, line: str) -> int:
    """Arm a fault of adapter a and return its number."""
    number, ok = commands.execute(f"arm a {line}")
    assert ok == "ok", number
    return int(number)


class Wire:
    """Guest a, which has the faults, sends to guest b."""

    def __init__(self) -> None:
        switch = LocalFabric()
        self.a, self.b = Mlx5Node(1, switch), Mlx5Node(2, switch)
        self.sq, self.rq = self.a.make_sq(), self.b.make_rq()
        self.b.steer(self.b.make_tir(self.rq))
        for node in (self.a, self.b):
            node.open()
            node.events()
        self.commands = of(self.a.hca, self.a.host)

    def send(self, count: int = 1) -> list[bytes]:
        """Send frames; the completions of the SQ."""
        for _ in range(count):
            self.b.post_receive(self.rq, address=0x200000)
            self.a.send(self.sq, mac_of(2) + mac_of(1) + b"\x88\xb5" + bytes(60))
        return self.a.completions(self.sq)


@pytest.fixture
def wire() -> Wire:
    return Wire()


def test_a_fault_that_both_cards_have_is_called_and_given_the_same() -> None:
    assert len(BY_NAME) == len(FAULTS)
    for fault in FAULTS:
        other = mlx4.BY_NAME[fault.name]
        assert (fault.layer, fault.effect, fault.needs, fault.takes, fault.count) == (
            other.layer, other.effect, other.needs, other.takes, other.count,
        ), fault.name  # fmt: skip
        assert {*fault.parameters, *fault.fixed} <= {*PARAMETERS}


def test_the_nth_completion_is_lost_and_its_frame_is_not(wire: Wire) -> None:
    number = arm(wire.commands, f"cqe-lost qpn={wire.sq.number:#x} nth=2")
    assert [CQE.get(cqe, "wqe_counter") for cqe in wire.send(3)] == [0, 2]
    assert len(wire.b.completions(wire.rq)) == 3
    assert wire.commands.execute("armed a")[0] == (
        f"{number} a cqe-lost of {wire.sq.number:#x}: matched 3, taken 1"
    )


def test_frames_hang_until_the_fault_is_cleared(wire: Wire) -> None:
    number = arm(wire.commands, "hung-wr qp-type=ETH")
    assert wire.send(2) == []
    assert wire.commands.execute(f"disarm a {number}") == ["ok"]
    assert len(wire.send()) == 1


def test_only_the_operation_that_was_named_is_taken(wire: Wire) -> None:
    arm(wire.commands, "hung-wr qp-type=ETH opcode=RECV")
    assert len(wire.send()) == 1


def test_a_completion_comes_twice_late_or_as_another_queues(wire: Wire) -> None:
    arm(wire.commands, "cqe-doubled qp-type=ETH")
    assert len(wire.send()) == 2
    arm(wire.commands, "cqe-late qp-type=ETH ms=500")
    assert wire.send() == []
    wire.a.host.run(0.6)
    assert len(wire.a.completions(wire.sq)) == 1
    arm(wire.commands, "cqe-foreign qp-type=ETH")
    (foreign,) = wire.send()
    assert CQE.get(foreign, "qpn") == 0xFFFFFE


def test_a_late_completion_of_a_queue_that_is_gone_is_not_written(wire: Wire) -> None:
    arm(wire.commands, "slow-drain qp-type=ETH ms=500")
    assert wire.send() == []
    wire.a.command(Opcode.DESTROY_SQ, number=wire.sq.number)
    wire.a.host.run(0.6)
    assert wire.a.completions(wire.sq) == []


@pytest.mark.parametrize("syndrome", list(Syndrome))
def test_a_completion_says_each_syndrome(wire: Wire, syndrome: Syndrome) -> None:
    (name,) = (fault.name for fault in FAULTS if fault.fixed.get("status") == syndrome.name)
    arm(wire.commands, f"{name} qp-type=ETH vendor=0x33")
    failed, good = wire.send(2)
    assert opcode_of(failed) is CqeOpcode.REQUEST_ERROR
    assert (syndrome_of(failed), ERROR_CQE.get(failed, "vendor_syndrome")) == (syndrome, 0x33)
    assert syndrome_of(good) == 0


@pytest.mark.parametrize("syndrome", list(Syndrome))
def test_a_completion_has_the_vendor_syndrome_of_hardware(wire: Wire, syndrome: Syndrome) -> None:
    """The one that the adapter's own errors have (docs/faults.md)."""
    (name,) = (fault.name for fault in FAULTS if fault.fixed.get("status") == syndrome.name)
    arm(wire.commands, f"{name} qp-type=ETH")
    (failed,) = wire.send()
    assert ERROR_CQE.get(failed, "vendor_syndrome") == VENDOR_SYNDROMES[syndrome] != 0


def test_work_that_the_adapter_cannot_do_fails_and_leaves_no_frame(wire: Wire) -> None:
    arm(wire.commands, "wr-unsupported qp-type=ETH count=1")
    (failed,) = wire.send()
    assert syndrome_of(failed) == Syndrome.LOCAL_QP_OP_ERR
    assert wire.b.completions(wire.rq) == []


def test_doorbells_are_ignored_until_the_fault_is_cleared(wire: Wire) -> None:
    number = arm(wire.commands, f"doorbell-ignored qpn={wire.sq.number}")
    assert wire.send(2) == []
    assert wire.commands.execute(f"disarm a {number}") == ["ok"]
    wire.a.host.run()
    assert len(wire.a.completions(wire.sq)) == 2


def test_a_completion_queue_is_broken_and_says_so(wire: Wire) -> None:
    assert wire.sq.cq is not None
    assert wire.commands.execute(f"arm a cq-overrun cqn={wire.sq.cq.number:#x}") == ["ok"]
    (event,) = wire.a.events()
    assert (EQE.get(event, "type"), CQ_ERROR_EQE.get(event, "cqn")) == (
        EventType.CQ_ERROR,
        wire.sq.cq.number,
    )
    assert wire.send() == []


def test_frames_of_the_network_device_are_spared_unless_they_are_named(wire: Wire) -> None:
    arm(wire.commands, "hung-wr")
    assert len(wire.send()) == 1


def test_a_key_permits_nothing_until_the_fault_is_cleared(wire: Wire) -> None:
    number = arm(wire.commands, f"key-locked key={wire.a.key:#x}")
    (failed,) = wire.send()
    assert syndrome_of(failed) == Syndrome.LOCAL_PROT_ERR
    assert wire.commands.execute(f"disarm a {number}") == ["ok"]
    fresh = wire.a.make_sq()
    wire.a.send(fresh, bytes(60))
    assert syndrome_of(wire.a.completions(fresh)[0]) == 0


def test_an_event_about_a_queue_that_nothing_caused(wire: Wire) -> None:
    assert wire.commands.execute(f"arm a event-qp-fatal qpn={wire.sq.number}") == ["ok"]
    (event,) = wire.a.events()
    assert EQE.get(event, "type") == EventType.WQ_CATASTROPHIC
    assert (QUEUE_EQE.get(event, "kind"), QUEUE_EQE.get(event, "number")) == (2, wire.sq.number)


def test_an_event_is_lost_and_the_next_one_is_not(wire: Wire) -> None:
    arm(wire.commands, "eqe-lost event=PORT_CHANGE")
    assert wire.commands.execute("arm a port-flap times=1 ms=10") == ["ok"]
    wire.a.host.run(0.1)
    (event,) = wire.a.events()
    assert EQE.get(event, "type") == EventType.PORT_CHANGE
    assert PORT_EQE.get(event, "port") == 1


def test_an_interrupt_is_lost_and_made_up_for_when_the_fault_ends(wire: Wire) -> None:
    number = arm(wire.commands, f"vector-masked vector={VECTOR}")
    wire.a.host.take_interrupts()
    assert wire.sq.cq is not None
    wire.a.arm(wire.sq.cq)
    wire.send()
    assert wire.a.host.take_interrupts() == []
    assert wire.commands.execute(f"disarm a {number}") == ["ok"]
    assert wire.a.host.take_interrupts() == [VECTOR]


def test_the_link_is_down_until_the_fault_is_cleared(wire: Wire) -> None:
    number = arm(wire.commands, "port-down")
    assert not wire.a.adapter.ports[0].link_up
    assert wire.commands.execute(f"disarm a {number}") == ["ok"]
    assert wire.a.adapter.ports[0].link_up


def test_a_command_fails_with_a_status_and_the_next_one_does_not() -> None:
    driver = Mlx5Driver().start()
    commands = of(driver.hca, driver.host)
    number = arm(commands, "command-fails opcode=ALLOC_PD status=LIM_ERR")
    answer = driver.command(Opcode.ALLOC_PD)
    assert answer.status is Status.LIM_ERR
    assert answer.syndrome
    assert driver.command(Opcode.ALLOC_PD).status is Status.OK
    assert commands.execute(f"disarm a {number}") == ["ok"]


@pytest.mark.parametrize("name", ["command-late ms=500", "command-never"])
def test_a_command_waits_and_others_do_not_wait_for_it(name: str) -> None:
    driver = Mlx5Driver().start()
    commands = of(driver.hca, driver.host)
    number = arm(commands, f"{name} opcode=ALLOC_PD")
    post(driver, 3, Opcode.ALLOC_PD)
    assert is_open(driver, 3)
    assert driver.command(Opcode.ALLOC_UAR).status is Status.OK
    driver.host.run(0.6)
    if "never" in name:
        assert is_open(driver, 3)
        assert commands.execute(f"disarm a {number}") == ["ok"]
        driver.host.run()
    assert not is_open(driver, 3)
    assert len(driver.adapter.objects.pds) == 1


def post(driver: Mlx5Driver, slot: int, opcode: Opcode) -> None:
    """Ring for a command without a wait for its end."""
    data = opcode.to_bytes(2, "big").ljust(16, b"\0")
    driver.write_entry(slot, data, 16)
    driver.ring(1 << slot)


def is_open(driver: Mlx5Driver, slot: int) -> bool:
    """Return whether an entry is still the adapter's."""
    return bool(driver.entry(slot)[-1] & 1)


def test_a_command_that_waits_is_forgotten_by_a_reset() -> None:
    driver = Mlx5Driver().start()
    number = arm(commands := of(driver.hca, driver.host), "command-never opcode=ALLOC_PD")
    post(driver, 3, Opcode.ALLOC_PD)
    driver.hca.reset()
    driver.start()
    driver.write_entry(3, Opcode.ALLOC_PD.to_bytes(2, "big").ljust(16, b"\0"), 16)  # not rung for
    assert commands.execute(f"disarm a {number}") == ["ok"]
    driver.host.run()
    assert is_open(driver, 3)
    assert len(driver.adapter.objects.pds) == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("map-icm-fails", "a ConnectX-5 has no fault map-icm-fails"),
        ("cqe-lost qpn=0x999", "there is no QP, SQ or RQ 0x999"),
        ("key-locked key=0x5", "there is no key 0x5"),
        ("event-srq-limit srqn=3", "there is no SRQ 0x3"),
        ("cq-overrun cqn=7", "there is no CQ 0x7"),
        ("doorbell-ignored qpn={rq}", "has no send queue"),
        ("command-fails opcode=SW2HW_CQ status=LIM_ERR", "choose from"),
        ("command-fails opcode=NOP status=OK", "status=OK is no failure"),
        ("interrupt-lost vector=4000", "the adapter has vectors 0 to"),
    ],
)
def test_what_does_not_fit_this_card_is_refused(wire: Wire, line: str, says: str) -> None:
    rq = wire.a.make_rq()
    (error,) = wire.commands.execute(f"arm a {line.format(rq=rq.number)}")
    assert error.startswith("error")
    assert says in error
