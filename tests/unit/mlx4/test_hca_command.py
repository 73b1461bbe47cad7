"""The command register: GO, toggle, events, statuses, state of the device, reset."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.capabilities import (
    INIT_HCA,
    QUERY_ADAPTER,
    QUERY_DEV_CAP,
    QUERY_FW,
    RESERVED_LKEY,
    BmmeFlag,
    DevFlag,
)
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.eqe import CMD_EQE, DATA_OFFSET
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands import register
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.settings.capabilities import CORE_CLOCK_MHZ
from tests.models.hca_driver import COMP_EQN, Driver

CONTROL = bar0.HCR_BASE + 0x18


@pytest.fixture
def driver() -> Driver:
    """A device after power-on."""
    return Driver()


def test_a_command_is_done_when_the_control_write_returns(driver: Driver) -> None:
    driver.post(Opcode.QUERY_FW, out_param=driver.mailbox_out)
    control = driver.read32(CONTROL)
    assert not control & bar0.HCR_GO
    assert control & bar0.HCR_TOGGLE
    assert control >> 24 == Status.OK
    assert control & 0xFFF == Opcode.QUERY_FW


def test_the_toggle_stays_as_written_and_reset_clears_it(driver: Driver) -> None:
    for expected in (1, 0, 1):
        driver.post(Opcode.NOP)
        assert bool(driver.read32(CONTROL) & bar0.HCR_TOGGLE) == bool(expected)
    driver.write32(bar0.RESET_OFFSET, bar0.RESET_VALUE)
    assert driver.read32(CONTROL) == 0


def test_words_before_control_start_nothing(driver: Driver) -> None:
    driver.write32(bar0.HCR_BASE + 0x14, 0xFFFFFFFF)
    driver.write32(CONTROL, Opcode.QUERY_FW)
    assert not driver.host.told


def test_an_eight_byte_store_may_end_in_the_control_word(driver: Driver) -> None:
    driver.hca.bar_write(0, bar0.HCR_BASE + 0x0C, driver.mailbox_out.to_bytes(8, "big"))
    control = bar0.HCR_GO | bar0.HCR_TOGGLE | Opcode.QUERY_FW
    driver.hca.bar_write(0, bar0.HCR_BASE + 0x14, control.to_bytes(8, "big"))
    assert driver.read32(CONTROL) >> 24 == Status.OK


@pytest.mark.parametrize("opcode", [0x000, 0x051, 0x123, Opcode.READ_MTT, Opcode.QUERY_FUNC])
def test_unknown_opcodes(driver: Driver, opcode: int) -> None:
    assert driver.start().try_command(opcode)[0] == Status.BAD_OP


@pytest.mark.parametrize("opcode", [Opcode.SW2HW_EQ, Opcode.SW2HW_MPT, Opcode.INIT_PORT])
def test_objects_need_init_hca(driver: Driver, opcode: Opcode) -> None:
    assert driver.try_command(opcode, b"", 1)[0] == Status.BAD_SYS_STATE


@pytest.mark.parametrize(
    "opcode", sorted(opcode for opcode, rule in register.RULES.items() if rule.closing)
)
@pytest.mark.parametrize("started", [False, True])
def test_closing_commands_always_succeed(driver: Driver, opcode: Opcode, started: bool) -> None:
    if started:
        driver.start()
    assert driver.try_command(opcode, 0xDEAD000, 0xBEEF, 1)[0] == Status.OK


def test_init_hca_once(driver: Driver) -> None:
    driver.start()
    assert (
        driver.try_command(Opcode.INIT_HCA, bytes(driver.init_mailbox()))[0] == Status.BAD_SYS_STATE
    )
    driver.command(Opcode.CLOSE_HCA)
    assert driver.try_command(Opcode.INIT_HCA, bytes(driver.init_mailbox()))[0] == Status.OK


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [
        ("version", 1, Status.BAD_PARAM),
        ("flags", 2, Status.BAD_PARAM),
        ("eqe_cqe_size", 1 << 29, Status.BAD_PARAM),
        ("uar_page_size", 1, Status.BAD_PARAM),
        ("mc_hash_fn", 1, Status.BAD_PARAM),
        ("log_mpts", 63, Status.EXCEED_LIM),
        ("log_mpts", 20, Status.EXCEED_LIM),
        ("log_qps", 19, Status.EXCEED_LIM),
        ("log_srqs", 17, Status.EXCEED_LIM),
        ("log_cqs", 17, Status.EXCEED_LIM),
        ("log_eqs", 8, Status.EXCEED_LIM),
        ("log_mc_table_size", 14, Status.EXCEED_LIM),
        ("log_mc_hash_size", 14, Status.EXCEED_LIM),
        ("log_mc_entry_size", 13, Status.EXCEED_LIM),
        ("log_mc_entry_size", 4, Status.BAD_PARAM),
    ],
)
def test_init_hca_refuses(driver: Driver, field: str, value: int, status: Status) -> None:
    mailbox = driver.init_mailbox()
    INIT_HCA.set(mailbox, field, value)
    assert driver.try_command(Opcode.INIT_HCA, bytes(mailbox))[0] == status
    assert not driver.adapter.parameters.initialised


def test_mailboxes_without_memory(driver: Driver) -> None:
    nowhere = 0xFFFF_FFFF_F000
    assert driver.try_command(Opcode.INIT_HCA, nowhere)[0] == Status.BAD_PARAM
    driver.post(Opcode.QUERY_FW, out_param=nowhere)
    assert driver.read32(CONTROL) >> 24 == Status.BAD_PARAM
    assert driver.try_command(Opcode.INIT_HCA, driver.mailbox_in + 4)[0] == Status.BAD_PARAM


def broken(adapter: Adapter, command: Command) -> None:
    """A handler with a bug."""
    raise ZeroDivisionError("a bug")


def test_a_fault_of_the_emulator_is_an_internal_error(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(register.RULES, Opcode.NOP, Rule(broken, before_init=True))
    assert driver.try_command(Opcode.NOP)[0] == Status.INTERNAL_ERR
    monkeypatch.undo()
    assert driver.try_command(Opcode.NOP)[0] == Status.OK


def test_faults_that_a_guest_repeats_are_not_all_logged(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(register.RULES, Opcode.NOP, Rule(broken, before_init=True))
    for _ in range(600):
        driver.try_command(Opcode.NOP)
    assert 99 <= len(caplog.records) < 110


def test_each_command_is_in_the_log_with_its_name_and_status(driver: Driver) -> None:
    driver.command(Opcode.NOP, 0, 0x1F)
    driver.try_command(0x123)
    nop, unknown = driver.host.facts(Fact.COMMAND)
    assert (nop["name"], nop["in_mod"], nop["status"]) == ("NOP", 0x1F, "OK")
    assert (unknown["name"], unknown["status"]) == ("0x123", "BAD_OP")


def test_event_mode_reports_token_status_and_result(driver: Driver) -> None:
    driver.start()
    driver.token = 0xABCD
    driver.post(Opcode.NOP, modifier=0x1F, event=True)
    driver.host.poke(driver.mailbox_in, bytes(16))
    driver.post(Opcode.MGID_HASH, driver.mailbox_in, event=True)
    driver.post(0x123, event=True)
    events = [
        CMD_EQE.unpack(bytes(4) + bytes(event["data"]) + bytes(4)) for event in driver.events()
    ]
    assert [event["token"] for event in events] == [0xABCD] * 3
    assert [event["status"] for event in events] == [Status.OK, Status.OK, Status.BAD_OP]
    assert events[1]["out_param"] == driver.adapter.multicast.hash(bytes(16))
    assert DATA_OFFSET == 4


def test_the_nop_interrupt_test(driver: Driver) -> None:
    driver.start()
    driver.eq_doorbell(driver.async_eq)
    driver.host.take_interrupts()
    driver.post(Opcode.NOP, modifier=0x1F, event=True)
    assert driver.host.take_interrupts() == [0]
    assert len(driver.events()) == 1


def test_query_fw_and_adapter(driver: Driver) -> None:
    firmware = QUERY_FW.unpack(driver.query(Opcode.QUERY_FW))
    assert (firmware["fw_major"], firmware["fw_minor"], firmware["fw_subminor"]) == (2, 42, 5000)
    assert firmware["cmd_interface_rev"] == 3
    assert firmware["fw_pages"] == 64
    vsd = QUERY_ADAPTER.get_raw(driver.query(Opcode.QUERY_ADAPTER), "vsd")[0xD0:0xE0]
    assert b"".join(vsd[at : at + 4][::-1] for at in range(0, 16, 4)).startswith(b"BB_CX3_A1")


def test_query_dev_cap_offers_what_krping_needs(driver: Driver) -> None:
    raw = driver.query(Opcode.QUERY_DEV_CAP)
    caps = QUERY_DEV_CAP.unpack(raw)
    flags = DevFlag(int.from_bytes(raw[0x40:0x48], "big"))
    assert DevFlag.RC | DevFlag.SRQ | DevFlag.ATOMIC | DevFlag.IBOE | DevFlag.PORT_MNG_CHG_EV in (
        flags
    )
    wanted = BmmeFlag.LOCAL_INV | BmmeFlag.REMOTE_INV | BmmeFlag.FAST_REG_WR
    assert wanted | BmmeFlag.RESERVED_LKEY in BmmeFlag(int(caps["bmme_flags"]))
    assert caps["reserved_lkey"] == RESERVED_LKEY
    assert caps["num_ports"] == 1
    assert caps["blueflame"] == 0
    assert caps["mtt_entry"] == 8


def test_query_hca_returns_what_init_hca_said(driver: Driver) -> None:
    driver.start()
    answer = INIT_HCA.unpack(driver.query(Opcode.QUERY_HCA))
    assert answer == INIT_HCA.unpack(bytes(driver.init_mailbox())) | {"core_clock": CORE_CLOCK_MHZ}


def test_probe_reads(driver: Driver) -> None:
    for offset in (
        bar0.OWNERSHIP_OFFSET,
        bar0.SEMAPHORE_OFFSET,
        bar0.CATAS_OFFSET,
        bar0.CLR_INT_OFFSET,
        0xF3F04,
    ):
        assert driver.read32(offset) == 0
        if offset != bar0.SEMAPHORE_OFFSET:
            driver.write32(offset, 0x12345678)
            assert driver.read32(offset) == 0


@pytest.mark.parametrize(
    ("data", "resets"),
    [("00000001", True), ("01000001", True), ("0000000000000001", False), ("01000000", False)],
)
def test_the_lowest_bit_of_the_register_resets(driver: Driver, data: str, resets: bool) -> None:
    driver.start()
    driver.hca.bar_write(0, bar0.RESET_OFFSET, bytes.fromhex(data))
    assert driver.adapter.parameters.initialised != resets


def test_a_wide_store_over_the_register_resets(driver: Driver) -> None:
    driver.start()
    driver.hca.bar_write(0, bar0.RESET_OFFSET - 4, bytes.fromhex("0000000000000001"))
    assert not driver.adapter.parameters.initialised


def test_reset_forgets_everything_and_a_second_load_works(driver: Driver) -> None:
    for _ in range(3):
        driver.start()
        driver.create_cq(0x80, 6)
        driver.create_mr(0x1000, 0x1000, [driver.host.allocate(4096)])
        driver.command(Opcode.INIT_PORT, 0, 1)
        driver.write32(bar0.RESET_OFFSET, bar0.RESET_VALUE)
        adapter = driver.adapter
        assert (adapter.icm.mapped_pages, len(adapter.regions), driver.port.link_up) == (
            0,
            0,
            False,
        )
        assert adapter.cqs.get(0x80) is None and adapter.eqs.get(COMP_EQN) is None
        driver.host.take_interrupts()
        adapter.eqs.post_async(9, bytes(24))
        assert not driver.host.interrupts
        driver.toggle = 1
        driver.hca.reset()


def test_close_hca_keeps_icm_mapped(driver: Driver) -> None:
    driver.start()
    pages = driver.adapter.icm.mapped_pages
    driver.command(Opcode.CLOSE_HCA)
    assert driver.adapter.icm.mapped_pages == pages
    assert driver.adapter.eqs.get(COMP_EQN) is None
