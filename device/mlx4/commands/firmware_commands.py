"""Commands on the device as a whole: identity, capabilities, lent memory, start and stop."""

from __future__ import annotations

from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_ADAPTER, QUERY_FW
from bluebridge.device.layout.mlx4.commands import MAILBOX_SIZE, MAX_MAP_ENTRIES, Opcode, Status
from bluebridge.device.layout.mlx4.contexts import MAP_ENTRY, WRITE_MTT
from bluebridge.device.layout.mlx4.ports import DIAGNOSTICS
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.memory.icm import MTT_ENTRY, PAGE, PAGE_SHIFT
from bluebridge.device.mlx4.ports.reports import TROUBLES
from bluebridge.device.mlx4.settings.capabilities import (
    CORE_CLOCK_MHZ,
    GROUP_LIMITS,
    INIT_LIMITS,
    RULE_LIMITS,
    device_capabilities,
)
from bluebridge.device.mlx4.settings.config import BOARD_ID, FIRMWARE
from bluebridge.device.mlx4.settings.parameters import (
    LARGE_CQES,
    LARGE_EQES,
    CommandError,
    Parameters,
)

COMMAND_INTERFACE = 3
LOG_MAX_COMMANDS = 4
INIT_HCA_VERSION = 2
BOARD_ID_OFFSET = 0xD0
BOARD_ID_BYTES = 16
MAX_LOG_MAP_PAGES = 18  # 1 GiB in one entry; drivers use up to 64 pages
MAX_MTT_ENTRIES = (MAILBOX_SIZE - WRITE_MTT.size) // MTT_ENTRY
MOD_STAT_GET_PORT = 2
MAILBOX_GUID_HIGH, MAILBOX_GUID_LOW = 0x14, 0x1C
DIAG_QUERY = 2
_COUNTER_MASK = 0xFFFFFFFF
BIG_ENDIAN_HOST = 1 << 1


def query_fw(adapter: Adapter, command: Command) -> bytes:
    """Return the firmware version, and the places of registers that have no fixed one."""
    major, minor, subminor = FIRMWARE
    return bytes(
        QUERY_FW.pack(
            fw_pages=adapter.firmware_pages.wanted, fw_major=major, fw_minor=minor,
            fw_subminor=subminor, cmd_interface_rev=COMMAND_INTERFACE,
            log_max_commands=LOG_MAX_COMMANDS, clr_int_offset=bar0.CLR_INT_OFFSET,
            catas_offset=bar0.CATAS_OFFSET, catas_dwords=bar0.CATAS_DWORDS,
            clock_offset=bar0.CLOCK_OFFSET,
        )
    )  # fmt: skip


def query_dev_cap(adapter: Adapter, command: Command) -> bytes:
    """Return the capabilities of the device."""
    return device_capabilities(len(adapter.ports), adapter.config.features)


def query_adapter(adapter: Adapter, command: Command) -> bytes:
    """Return the board id: a string whose 32-bit words are byte-swapped."""
    text = BOARD_ID.encode("ascii").ljust(BOARD_ID_BYTES, b"\0")[:BOARD_ID_BYTES]
    swapped = b"".join(text[at : at + 4][::-1] for at in range(0, BOARD_ID_BYTES, 4))
    vsd = bytearray(0xE0)
    vsd[BOARD_ID_OFFSET : BOARD_ID_OFFSET + BOARD_ID_BYTES] = swapped
    return bytes(QUERY_ADAPTER.pack(vsd=bytes(vsd)))


def mod_stat_cfg(adapter: Adapter, command: Command) -> bytes | None:
    """Return the physical port id, the only static configuration that there is."""
    if command.op_modifier != MOD_STAT_GET_PORT:
        return None
    port = adapter.port_of(command.in_modifier >> 8 & 0xFF)
    guid = adapter.config.port_guid(port.number).to_bytes(8, "big")
    mailbox = bytearray(0x40)
    mailbox[MAILBOX_GUID_HIGH : MAILBOX_GUID_HIGH + 4] = guid[:4]
    mailbox[MAILBOX_GUID_LOW : MAILBOX_GUID_LOW + 4] = guid[4:]
    return bytes(mailbox)


def nothing(adapter: Adapter, command: Command) -> None:
    """Do nothing, successfully, for NOP, RUN_FW and HW_HEALTH_CHECK."""


def set_icm_size(adapter: Adapter, command: Command) -> int:
    """Set the size of ICM, the immediate input; returns the number of auxiliary pages wanted."""
    adapter.icm.announce(command.in_param)
    return adapter.auxiliary_pages.wanted


def map_icm(adapter: Adapter, command: Command) -> None:
    """Map lent pages into ICM, 2**n per entry; all entries are checked before one is mapped."""
    entries = []
    for virtual, physical, log_pages in _map_entries(command):
        if virtual & (PAGE - 1) or log_pages > MAX_LOG_MAP_PAGES:
            raise CommandError(Status.BAD_PARAM, f"ICM {virtual:#x}, 2**{log_pages} pages")
        adapter.icm.check(virtual, log_pages)
        entries.append((virtual, physical, log_pages))
    for entry in entries:
        adapter.icm.map(*entry)


def map_firmware(adapter: Adapter, command: Command) -> None:
    """Accept pages for the firmware (MAP_FA), no more than it asked for."""
    adapter.firmware_pages.lend(_pages(command))


def unmap_firmware(adapter: Adapter, command: Command) -> None:
    """Give all pages of the firmware back (UNMAP_FA)."""
    adapter.firmware_pages.take_back()


def map_auxiliary(adapter: Adapter, command: Command) -> None:
    """Accept pages for the firmware's own part of ICM (MAP_ICM_AUX)."""
    adapter.auxiliary_pages.lend(_pages(command))


def unmap_auxiliary(adapter: Adapter, command: Command) -> None:
    """Give all pages of the firmware's part of ICM back (UNMAP_ICM_AUX)."""
    adapter.auxiliary_pages.take_back()


def _pages(command: Command) -> int:
    entries = _map_entries(command)
    if any(log_pages > MAX_LOG_MAP_PAGES for _, _, log_pages in entries):
        raise CommandError(Status.BAD_PARAM, f"entries of more than 2**{MAX_LOG_MAP_PAGES} pages")
    return sum(1 << log_pages for _, _, log_pages in entries)


def write_mtt(adapter: Adapter, command: Command) -> None:
    """Store entries of the MTT, for drivers that keep the table out of their own memory."""
    count = command.in_modifier
    if not 0 < count <= MAX_MTT_ENTRIES:
        raise CommandError(Status.BAD_PARAM, f"{count} entries")
    mailbox = command.mailbox(WRITE_MTT.size + count * MTT_ENTRY)
    adapter.icm.write_mtt(WRITE_MTT.get(mailbox, "offset"), mailbox[WRITE_MTT.size :])


def _map_entries(command: Command) -> list[tuple[int, int, int]]:
    count = command.in_modifier
    if not 0 < count <= MAX_MAP_ENTRIES:
        raise CommandError(Status.BAD_PARAM, f"{count} entries")
    mailbox = command.mailbox(count * MAP_ENTRY.size)
    get = MAP_ENTRY.get
    return [
        (
            get(mailbox, "virtual", at),
            get(mailbox, "page", at) << PAGE_SHIFT,
            get(mailbox, "log_pages", at),
        )
        for at in range(0, len(mailbox), MAP_ENTRY.size)
    ]


def unmap_icm(adapter: Adapter, command: Command) -> None:
    """Remove pages from ICM; always succeeds."""
    adapter.icm.unmap(command.in_param, command.in_modifier)


def init_hca(adapter: Adapter, command: Command) -> None:
    """Start the HCA with table sizes, no larger than QUERY_DEV_CAP offers, and ICM bases."""
    if adapter.parameters.initialised:
        raise CommandError(Status.BAD_SYS_STATE, "the HCA runs already")
    mailbox = command.mailbox(INIT_HCA.size)
    get = INIT_HCA.get
    if get(mailbox, "version") != INIT_HCA_VERSION:
        raise CommandError(Status.BAD_PARAM, f"version {get(mailbox, 'version')}")
    refused = LARGE_EQES if adapter.config.features.large_cqes else LARGE_EQES | LARGE_CQES
    if get(mailbox, "flags") & BIG_ENDIAN_HOST or get(mailbox, "eqe_cqe_size") & refused:
        raise CommandError(Status.BAD_PARAM, "big-endian hosts and 64-byte entries are not offered")
    if get(mailbox, "uar_page_size"):
        raise CommandError(Status.BAD_PARAM, "UAR pages are 4 KiB")
    if get(mailbox, "mc_hash_fn"):
        raise CommandError(Status.BAD_PARAM, "another hash function of multicast addresses")
    parameters = Parameters.of_mailbox(mailbox)
    table = RULE_LIMITS if parameters.flow_steering else GROUP_LIMITS
    for name, allowed in (INIT_LIMITS | table).items():
        wanted = getattr(parameters, name)
        if wanted not in allowed:
            status = Status.EXCEED_LIM if wanted >= allowed.stop else Status.BAD_PARAM
            raise CommandError(status, f"{name} is {wanted}, not within {allowed}")
    adapter.initialise(parameters)


def query_hca(adapter: Adapter, command: Command) -> bytes:
    """Return the parameters of INIT_HCA and the speed of the clock."""
    answer = bytearray(adapter.parameters.raw)
    INIT_HCA.set(answer, "global_caps", 0)
    INIT_HCA.set(answer, "core_clock", CORE_CLOCK_MHZ)
    INIT_HCA.set(answer, "cacheline", 0)
    return bytes(answer)


def close_hca(adapter: Adapter, command: Command) -> None:
    """Stop the HCA: no DMA from now on. ICM stays mapped until UNMAP_ICM."""
    adapter.clear()


def diag_rprt(adapter: Adapter, command: Command) -> bytes:
    """Return the diagnostic counters of a port, or with modifier 0 those of all together."""
    if command.op_modifier != DIAG_QUERY:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")
    number = command.in_modifier
    answer = bytearray(DIAGNOSTICS.size)
    for port in adapter.ports if number == 0 else (adapter.port_of(number),):
        for trouble, count in port.diagnostics.counts.items():
            name = TROUBLES.get(trouble)
            if name is None:
                continue
            total = int(DIAGNOSTICS.get(answer, name)) + count
            DIAGNOSTICS.set(answer, name, total & _COUNTER_MASK)
    return bytes(answer)


RULES: dict[int, Rule] = {
    Opcode.QUERY_FW: Rule(query_fw, before_init=True),
    Opcode.QUERY_DEV_CAP: Rule(query_dev_cap, before_init=True),
    Opcode.QUERY_ADAPTER: Rule(query_adapter, before_init=True),
    Opcode.MOD_STAT_CFG: Rule(mod_stat_cfg, before_init=True),
    Opcode.NOP: Rule(nothing, before_init=True),
    Opcode.RUN_FW: Rule(nothing, before_init=True),
    Opcode.HW_HEALTH_CHECK: Rule(nothing),
    Opcode.UNMAP_FA: Rule(unmap_firmware, before_init=True, closing=True),
    Opcode.UNMAP_ICM_AUX: Rule(unmap_auxiliary, before_init=True, closing=True),
    Opcode.MAP_FA: Rule(map_firmware, before_init=True),
    Opcode.MAP_ICM_AUX: Rule(map_auxiliary, before_init=True),
    Opcode.SET_ICM_SIZE: Rule(set_icm_size, before_init=True),
    Opcode.MAP_ICM: Rule(map_icm, before_init=True),
    Opcode.UNMAP_ICM: Rule(unmap_icm, before_init=True, closing=True),
    Opcode.INIT_HCA: Rule(init_hca, before_init=True),
    Opcode.QUERY_HCA: Rule(query_hca),
    Opcode.CLOSE_HCA: Rule(close_hca, closing=True),
    Opcode.WRITE_MTT: Rule(write_mtt),
    Opcode.DIAG_RPRT: Rule(diag_rprt),
}
