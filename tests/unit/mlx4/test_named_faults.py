"""Faults by name, as the control socket arms them: what software of the adapter sees."""

from __future__ import annotations

import pytest

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.faults import ONCE, PARAMETERS, Effect
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import (
    CMD_EQE,
    CQ_ERROR_EQE,
    PORT_ACTIVE,
    PORT_DOWN,
    PORT_MNG_EQE,
    EventType,
)
from bluebridge.device.layout.mlx4.faults import BY_NAME, FAULTS
from bluebridge.device.server.control import ControlCommands
from tests.models.hca_driver import COMP_EQN, Driver
from tests.models.rdma_node import Pair, SendOpcode

CONTROL = bar0.HCR_BASE + 0x18


@pytest.fixture
def pair() -> Pair:
    """Two adapters with a connected queue pair each."""
    return Pair().connect()


def of(driver: Driver) -> ControlCommands:
    """Return the commands of the control socket of an adapter called a."""
    return ControlCommands({"a": driver.hca}, FaultRules(driver.host.call_later, EventLog()))


def sends(pair: Pair, count: int = 1) -> list[int]:
    """Post signalled SENDs from a to b; return the statuses (0: success) of their completions."""
    for _ in range(count):
        pair.post_recv([])
        pair.post_send(SendOpcode.SEND)
    pair.run(0.01)
    return pair.sent()


def arm(commands: ControlCommands, line: str) -> int:
    """Arm a fault of adapter a and return its number."""
    number, ok = commands.execute(f"arm a {line}")
    assert ok == "ok"
    return int(number)


def test_names_are_said_once_and_their_parameters_are_known() -> None:
    assert len(BY_NAME) == len(FAULTS)
    for fault in FAULTS:
        assert {*fault.parameters, *fault.fixed} <= {*PARAMETERS}, fault.name
        assert not {*fault.needs} & {*fault.takes}, fault.name


def test_the_nth_completion_is_lost(pair: Pair) -> None:
    commands = of(pair.a)
    number = arm(commands, f"cqe-lost qpn={pair.qa.qpn:#x} nth=2")
    assert len(sends(pair, 3)) == 2
    assert commands.execute("armed a")[0] == (
        f"{number} a cqe-lost of {pair.qa.qpn:#x}: matched 3, taken 1"
    )
    assert len(pair.b.completions(pair.qb)) == 3


def test_work_hangs_until_the_fault_is_cleared(pair: Pair) -> None:
    commands = of(pair.a)
    number = arm(commands, f"hung-wr qpn={pair.qa.qpn}")
    assert sends(pair, 3) == []
    assert commands.execute(f"disarm a {number}") == ["ok"]
    assert sends(pair) == [0]
    wanted = {"fault": int(number), "name": "hung-wr", "what": "", "qpn": pair.qa.qpn}
    assert pair.a.host.facts(Fact.NAMED_FAULT) == [wanted] * 3


def test_a_completion_comes_twice_or_late(pair: Pair) -> None:
    commands = of(pair.a)
    arm(commands, f"cqe-doubled qpn={pair.qa.qpn}")
    assert sends(pair) == [0, 0]
    arm(commands, f"cqe-late qpn={pair.qa.qpn} ms=500")
    assert sends(pair) == []
    pair.run(0.6)
    assert len(pair.a.completions(pair.qa)) == 1


def test_a_late_completion_of_a_queue_pair_that_is_gone_is_not_written(pair: Pair) -> None:
    arm(of(pair.a), f"slow-drain qpn={pair.qa.qpn} ms=500")
    assert sends(pair) == []
    pair.a.command(Opcode.TORST_QP, 3, pair.qa.qpn)
    pair.run(0.6)
    assert pair.a.completions(pair.qa) == []


@pytest.mark.parametrize("status", list(CompletionStatus))
def test_a_completion_says_each_status(pair: Pair, status: CompletionStatus) -> None:
    name = next(
        fault.name
        for fault in FAULTS
        if fault.effect is Effect.CQE_STATUS and fault.fixed["status"] == status.name
    )
    arm(of(pair.a), f"{name} qpn={pair.qa.qpn}")
    assert sends(pair, 2) == [status, 0]


def test_an_unknown_status_and_a_foreign_queue_pair(pair: Pair) -> None:
    commands = of(pair.a)
    arm(commands, f"wc-general-err qpn={pair.qa.qpn}")
    assert sends(pair) == [0x7F]
    arm(commands, f"cqe-foreign qpn={pair.qa.qpn}")
    pair.post_recv([])
    pair.post_send(SendOpcode.SEND)
    pair.run(0.01)
    (wc,) = pair.a.completions(pair.qa)
    assert wc.qpn == 0xFFFFFE


def test_the_other_queue_pair_is_not_disturbed(pair: Pair) -> None:
    other = pair.a.create_qp(0x800241)
    arm(of(pair.a), f"hung-wr qpn={other.qpn}")
    assert sends(pair, 2) == [0, 0]


def test_doorbells_are_ignored_until_the_fault_is_cleared(pair: Pair) -> None:
    commands = of(pair.a)
    number = arm(commands, f"doorbell-ignored qpn={pair.qa.qpn}")
    assert commands.execute(f"arm a doorbell-ignored qpn={pair.qa.qpn}")[0].startswith("error")
    assert sends(pair, 2) == []
    assert not pair.b.completions(pair.qb)
    assert commands.execute(f"disarm a {number}") == ["ok"]
    pair.run(0.01)
    assert pair.sent() == [0, 0]


def test_a_broken_queue_tells_of_itself(pair: Pair) -> None:
    cqn = pair.a.hca.adapter.cqs.numbers()[0]
    assert of(pair.a).execute(f"arm a cq-overrun cqn={cqn}") == ["ok"]
    assert pair.a.events(EventType.CQ_ERROR)
    assert sends(pair) == []


def test_an_event_that_nothing_caused(pair: Pair) -> None:
    for fault in FAULTS:
        if fault.effect is Effect.EVENT and fault.needs == ("qpn",):
            line = f"arm a {fault.name} qpn={pair.qa.qpn}"
            assert of(pair.a).execute(line) == ["ok"]
            assert pair.a.events(EventType[fault.fixed["event"]]), fault.name


def test_an_error_of_a_completion_queue_says_which(pair: Pair) -> None:
    cqn = pair.a.hca.adapter.cqs.numbers()[0]
    for fault, syndrome in (("event-cq-err", 2), ("cq-overrun", 1)):
        assert of(pair.a).execute(f"arm a {fault} cqn={cqn}") == ["ok"]
        (event,) = pair.a.events(EventType.CQ_ERROR)
        assert isinstance(event["data"], bytes)
        found = CQ_ERROR_EQE.unpack(bytes(4) + event["data"] + bytes(4))
        assert (found["cqn"], found["syndrome"]) == (cqn, syndrome)


def test_events_of_management_name_the_port_and_what_changed(pair: Pair) -> None:
    for fault in FAULTS:
        if fault.effect is Effect.PORT_EVENT:
            assert of(pair.a).execute(f"arm a {fault.name}") == ["ok"]
            (event,) = pair.a.events(EventType.PORT_MNG_CHG)
            assert isinstance(event["data"], bytes)
            found = PORT_MNG_EQE.unpack(bytes(4) + event["data"] + bytes(4))
            said = {"subtype": str(event["subtype"]), "changed": str(found["changed"])}
            assert (found["port"], said) == (1, dict(fault.fixed)), fault.name


@pytest.fixture
def driver() -> Driver:
    """An adapter whose port is open."""
    driver = Driver().start()
    driver.command(Opcode.INIT_PORT, 0, 1)
    driver.events(EventType.PORT_CHANGE)
    return driver


def status(driver: Driver) -> int:
    """Return the status in the command register, -1 while GO is set."""
    word = driver.read32(CONTROL)
    return -1 if word & bar0.HCR_GO else word >> 24


def tokens(driver: Driver) -> list[int | bytes]:
    """Return the tokens of the commands that new events say are complete."""
    texts = [bytes(4) + bytes(event["data"]) + bytes(4) for event in driver.events()]
    return [CMD_EQE.get(text, "token") for text in texts]


def test_the_second_command_fails(driver: Driver) -> None:
    commands = of(driver)
    arm(commands, "command-fails opcode=QUERY_FW status=BAD_NVMEM nth=2")
    found = []
    for _ in range(3):
        driver.post(Opcode.QUERY_FW, out_param=driver.mailbox_out)
        found.append(status(driver))
    assert found == [Status.OK, Status.BAD_NVMEM, Status.OK]


@pytest.mark.parametrize(
    "fault", [each for each in FAULTS if each.effect is Effect.COMMAND_FAILS and each.fixed],
    ids=lambda fault: fault.name,
)  # fmt: skip
def test_commands_of_verbs_fail_by_name(driver: Driver, fault: object) -> None:
    named = BY_NAME[getattr(fault, "name", "")]
    arm(of(driver), named.name)
    driver.post(Opcode[named.fixed["opcode"]])
    assert status(driver) == Status[named.fixed["status"]]


def test_a_command_is_late(driver: Driver) -> None:
    arm(of(driver), "command-late opcode=NOP ms=200")
    driver.post(Opcode.NOP)
    assert status(driver) == -1
    driver.host.run(0.3)
    assert status(driver) == Status.OK


def test_a_command_is_kept_until_the_fault_is_cleared(driver: Driver) -> None:
    commands = of(driver)
    arm(commands, "command-never opcode=NOP")
    driver.post(Opcode.NOP)
    driver.host.run(100)
    assert status(driver) == -1
    assert commands.execute("disarm a") == ["ok"]
    assert status(driver) == Status.OK
    assert commands.execute("armed") == ["ok"]


@pytest.mark.parametrize("fault", ["command-never opcode=NOP", "command-late opcode=NOP ms=200"])
def test_others_are_posted_while_one_waits_whose_end_is_an_event(
    driver: Driver, fault: str
) -> None:
    commands = of(driver)
    arm(commands, fault)
    driver.events()
    driver.token = 7
    driver.post(Opcode.NOP, event=True)
    assert status(driver) != -1
    driver.token = 8
    driver.post(Opcode.QUERY_FW, out_param=driver.mailbox_out, event=True)
    assert tokens(driver) == [8]
    driver.post(Opcode.MAP_FA)
    refused = status(driver)
    driver.host.run(0.3)
    commands.execute("disarm a")
    assert tokens(driver) == [7]
    assert status(driver) == refused != Status.OK


def test_a_reset_ends_the_command_that_is_kept_and_not_the_fault(driver: Driver) -> None:
    commands = of(driver)
    arm(commands, "command-never opcode=NOP count=2")
    driver.post(Opcode.NOP)
    driver.write32(bar0.RESET_OFFSET, bar0.RESET_VALUE)
    driver.toggle = 1
    driver.post(Opcode.QUERY_FW, out_param=driver.mailbox_out)
    assert status(driver) == Status.OK
    driver.post(Opcode.NOP)
    assert status(driver) == -1
    assert commands.execute("disarm a 1") == ["ok"]
    assert status(driver) == Status.BAD_SYS_STATE or status(driver) == Status.OK


def test_events_and_interrupts_get_lost(driver: Driver) -> None:
    commands = of(driver)
    arm(commands, "eqe-lost event=PORT_CHANGE")
    commands.execute("link a down")
    commands.execute("link a up")
    assert [event["subtype"] for event in driver.events(EventType.PORT_CHANGE)] == [PORT_ACTIVE]
    driver.host.take_interrupts()
    eq = driver.hca.adapter.eqs.get(COMP_EQN)
    assert eq is not None
    arm(commands, f"interrupt-lost vector={eq.vector} count=1000")
    commands.execute("link a down")
    assert eq.vector not in driver.host.take_interrupts()


@pytest.mark.parametrize("end", ["link a up", "disarm a"])
def test_the_next_event_or_the_end_of_the_fault_brings_a_lost_interrupt(
    driver: Driver, end: str
) -> None:
    commands = of(driver)
    driver.events()
    eq = driver.hca.adapter.eqs.get(driver.async_eq.number)
    assert eq is not None
    arm(commands, f"interrupt-lost vector={eq.vector}")
    driver.host.take_interrupts()
    commands.execute("link a down")
    assert eq.vector not in driver.host.take_interrupts()
    assert commands.execute(end)[-1] == "ok"
    assert eq.vector in driver.host.take_interrupts()


def test_a_port_flaps_and_is_up_at_the_end(driver: Driver) -> None:
    assert of(driver).execute("arm a port-flap times=2 ms=100") == ["ok"]
    driver.host.run(1.0)
    found = [event["subtype"] for event in driver.events(EventType.PORT_CHANGE)]
    assert found == [PORT_DOWN, PORT_ACTIVE] * 2


@pytest.mark.parametrize(
    "line",
    [
        "arm", "arm a", "arm b hung-wr qpn=1", "arm a frob",
        "arm a hung-wr qpn=0x7",
        "arm a hung-wr qpn=-1", "arm a hung-wr qpn=x", "arm a hung-wr cqn=1",
        "arm a cqe-late qpn=1",
        "arm a command-fails opcode=FROB status=BAD_OP", "arm a command-fails opcode=NOP status=OK",
        "arm a command-fails opcode=NOP status=FROB", "arm a command-late opcode=NOP ms=600001",
        "arm a command-never opcode=NOP nth=0", "arm a command-never opcode=NOP count=0",
        "arm a command-never opcode=NOP opcode=NOP", "arm a interrupt-lost vector=9999",
        "arm a cq-overrun cqn=0x7777", "arm a event-cq-err cqn=0x7777",
        "arm a event-qp-fatal qpn=7",
        "arm a event-srq-err srqn=7", "arm a port-flap times=1001 ms=1", "armed b", "armed a b",
        "disarm", "disarm a 1", "disarm a x", "disarm b",
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_arms_nothing(driver: Driver, line: str) -> None:
    commands = of(driver)
    (answer,) = commands.execute(line)
    assert answer.startswith("error: ")
    assert commands.execute("armed") == ["ok"]


def test_a_fault_that_is_refused_uses_no_number(driver: Driver) -> None:
    commands = of(driver)
    commands.execute("arm a command-fails opcode=NOP status=FROB")
    assert commands.execute("arm a command-fails opcode=NOP status=BAD_OP") == ["1", "ok"]


def test_no_more_than_64_are_armed(driver: Driver) -> None:
    commands = of(driver)
    for _ in range(64):
        arm(commands, "command-never opcode=NOP")
    (answer,) = commands.execute("arm a command-never opcode=NOP")
    assert answer.startswith("error: 64 faults")


def test_what_happens_at_once_is_known() -> None:
    assert {fault.effect for fault in FAULTS} == {*Effect}
    assert {fault.effect for fault in FAULTS if fault.effect in ONCE} == {*ONCE}
