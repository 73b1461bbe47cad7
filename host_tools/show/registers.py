"""The items of registers: of BAR0, and of config space with the words of `lspci -vv`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from bluebridge.device.layout import ioat, pci
from bluebridge.device.layout.fields import Access, Register, RegisterBlock, Struct
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.commands import name_of
from bluebridge.device.layout.ntb.models import BY_NAME
from bluebridge.host_tools.show.text import Item, Kind, Row

_LINE = 64
_OPCODE = 0xFFF


def blocks_of(model: str) -> Sequence[RegisterBlock]:
    """Return the register tables of a function: `hca`, `ioat`, or the name of a bridge's model."""
    if model == "hca":
        return (bar0.HCR,)
    return ioat.BLOCKS if model == "ioat" else BY_NAME[model].blocks


def lines_of(row: Row) -> Mapping[int, bytes]:
    """Return the bytes of registers by offset, from a row of the device server."""
    return {int(offset): bytes.fromhex(line) for offset, line in row["lines"].items()}


def value_at(
    lines: Mapping[int, bytes], block: RegisterBlock, register: Register, index: int = 0
) -> int:
    """Return the value of a register; registers that are in no line are zero."""
    offset = block.base + index * block.stride + register.offset
    start = next((at for at in (offset, offset & -_LINE, block.base) if at in lines), None)
    if start is None:
        return 0
    at = offset - start
    return int.from_bytes(lines[start][at : at + register.width // 8], block.order)


def registers(row: Row) -> list[Item]:
    """Return the registers that can be read; of repeated ones only those changed since reset."""
    lines = lines_of(row)
    found = [
        _item(block, register, index, value)
        for block in blocks_of(row["model"])
        for register, index, value in _values(lines, block)
    ]
    return [*found, _error_buffer(lines)] if row["model"] == "hca" else found


def _values(
    lines: Mapping[int, bytes], block: RegisterBlock
) -> Iterator[tuple[Register, int, int]]:
    for index in range(block.count):
        for register in block.registers:
            if register.access is Access.WO:
                continue
            value = value_at(lines, block, register, index)
            if block.count == 1 or value != register.reset:
                yield register, index, value


def _item(block: RegisterBlock, register: Register, index: int, value: int) -> Item:
    place = f"[{index}]" if block.count > 1 else ""
    name = f"{block.name}{place}.{register.name}"
    fields = register.decode(value) if register.fields or register.values else ""
    meaning = fields.removeprefix(register.name).strip()
    if block is bar0.HCR and register.name == "control":
        meaning = f"{meaning} {name_of(value & _OPCODE)}" if value else meaning
    return {
        "offset": block.base + index * block.stride + register.offset,
        "register": name,
        "value": f"{value:#0{2 + register.width // 4}x}",
        "fields": meaning,
        "meaning": register.doc,
    }


def _error_buffer(lines: Mapping[int, bytes]) -> Item:
    buffer = lines[bar0.CATAS_OFFSET]
    code = bar0.CATAS.get(buffer, "code")
    text = bar0.CATAS.get_raw(buffer, "text").rstrip(b"\0").decode("ascii", "replace")
    return {
        "offset": bar0.CATAS_OFFSET,
        "register": "CATAS",
        "value": f"{code:#010x}",
        "fields": f"internal error: {text}" if code else "healthy",
        "meaning": bar0.CATAS.doc,
    }


REGS = Kind(
    "regs", "registers", "an offset in BAR0", registers, ("offset",),
    ("offset", "register", "value", "fields", "meaning"),
    frozenset(("offset",)),
    offsets=True,
)  # fmt: skip


_COMMAND = {
    "I/O": 0, "Mem": 1, "BusMaster": 2, "SpecCycle": 3, "MemWINV": 4, "VGASnoop": 5, "ParErr": 6,
    "Stepping": 7, "SERR": 8, "FastB2B": 9, "DisINTx": 10,
}  # fmt: skip
_STATUS = {
    "INTx": 3, "Cap": 4, "66MHz": 5, "UDF": 6, "FastB2B": 7, "ParErr": 8, ">TAbort": 11,
    "<TAbort": 12, "<MAbort": 13, ">SERR": 14, "<PERR": 15,
}  # fmt: skip
_SPEEDS = ("unknown", "2.5GT/s", "5GT/s", "8GT/s", "16GT/s", "32GT/s")
_ENTRIES = 64  # The most capabilities that are followed: a space of 256 bytes has room for fewer

Entry = tuple[int, str, str]
"""The offset, name and decoded value of a register."""


def _flags(value: int, names: Mapping[str, int]) -> str:
    return " ".join(f"{name}{'+' if value >> bit & 1 else '-'}" for name, bit in names.items())


def _header(config: bytes, bars: Mapping[str, int]) -> Iterator[Entry]:
    get = pci.HEADER.get
    kind = pci.HEADER.get_raw(config, "class_code")[::-1].hex()
    device = f"{get(config, 'vendor'):04x}:{get(config, 'device'):04x}"
    own = f"{get(config, 'subsystem_vendor'):04x}:{get(config, 'subsystem'):04x}"
    yield 0x00, "Device", f"{device} (rev {get(config, 'revision'):02x}) class {kind}"
    yield 0x2C, "Subsystem", own
    yield 0x04, "Control", _flags(get(config, "command"), _COMMAND)
    yield 0x06, "Status", _flags(get(config, "status"), _STATUS)
    for bar, size in bars.items():
        yield 0x10 + 4 * int(bar), f"Region {bar}", _region(config, int(bar), size)


def _region(config: bytes, bar: int, size: int) -> str:
    low = pci.HEADER.get(config, f"bar{bar}")
    wide = bool(low & pci.BAR_64BIT)
    high = pci.HEADER.get(config, f"bar{bar + 1}") if wide else 0
    address = high << 32 | low & ~0xF
    where = f"{address:08x}" if address else "<unassigned>"
    kind = f"{64 if wide else 32}-bit, {'' if low & pci.BAR_PREFETCHABLE else 'non-'}prefetchable"
    return f"Memory at {where} ({kind}) [size={_size(size)}]"


def _size(size: int) -> str:
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << shift:
            return f"{size >> shift}{unit}"
    return str(size)


def _power(at: int, raw: bytes) -> Iterator[Entry]:
    get = pci.PM_CAPABILITY.get
    yield at, f"[{at:02x}] Power Management", f"version {get(raw, 'version')}"
    state = f"D{get(raw, 'power_state')} NoSoftRst{'+' if get(raw, 'no_soft_reset') else '-'}"
    yield at + 4, f"[{at:02x}] Status", state


def _msix(at: int, raw: bytes) -> Iterator[Entry]:
    get = pci.MSIX_CAPABILITY.get
    enable, masked = get(raw, "enable"), get(raw, "function_mask")
    words = f"Enable{_sign(enable)} Count={get(raw, 'table_size') + 1} Masked{_sign(masked)}"
    yield at, f"[{at:02x}] MSI-X", words
    for field, name, start in (("table", "Vector table", 4), ("pending", "PBA", 8)):
        word = get(raw, field)
        yield at + start, f"[{at:02x}] {name}", f"BAR={word & 7} offset={word & ~7:08x}"


def _sign(value: int) -> str:
    return "+" if value else "-"


def _express(at: int, raw: bytes) -> Iterator[Entry]:
    get = pci.EXPRESS_CAPABILITY.get

    def link(speed: str, width: str) -> str:
        number = get(raw, speed)
        named = _SPEEDS[number] if number < len(_SPEEDS) else "unknown"
        return f"Speed {named}, Width x{get(raw, width)}"

    kind = "Endpoint" if get(raw, "port_type") == 0 else f"type {get(raw, 'port_type')}"
    payload = 128 << get(raw, "max_payload_supported")
    yield at, f"[{at:02x}] Express", f"(v{get(raw, 'version')}) {kind}"
    extended = _sign(get(raw, "extended_tag_supported"))
    errors, reset = _sign(get(raw, "role_based_errors")), _sign(get(raw, "function_reset"))
    words = f"MaxPayload {payload} bytes ExtTag{extended} RBE{errors} FLReset{reset}"
    yield at + 0x04, f"[{at:02x}] DevCap", words
    request = 128 << get(raw, "max_read_request")
    ordering, snoop = _sign(get(raw, "relaxed_ordering")), _sign(get(raw, "no_snoop"))
    words = f"RlxdOrd{ordering} NoSnoop{snoop} MaxReadReq {request} bytes"
    yield at + 0x08, f"[{at:02x}] DevCtl", words
    yield at + 0x0A, f"[{at:02x}] DevSta", f"{get(raw, 'device_status'):#06x}"
    yield at + 0x0C, f"[{at:02x}] LnkCap", link("link_speed_max", "link_width_max")
    yield at + 0x10, f"[{at:02x}] LnkCtl", f"{get(raw, 'link_control'):#06x}"
    yield at + 0x12, f"[{at:02x}] LnkSta", link("link_speed", "link_width")
    yield at + 0x28, f"[{at:02x}] DevCtl2", f"{get(raw, 'device_control2'):#06x}"
    yield at + 0x30, f"[{at:02x}] LnkCtl2", f"{get(raw, 'link_control2'):#06x}"


def _vpd(at: int, raw: bytes) -> Iterator[Entry]:
    words = f"offset {pci.VPD_CAPABILITY.get(raw, 'address'):#x}"
    yield at, f"[{at:02x}] Vital Product Data", words


_CAPABILITIES: Mapping[int, tuple[Struct, Callable[[int, bytes], Iterator[Entry]]]] = {
    pci.CAP_ID_PM: (pci.PM_CAPABILITY, _power),
    pci.CAP_ID_VPD: (pci.VPD_CAPABILITY, _vpd),
    pci.CAP_ID_MSIX: (pci.MSIX_CAPABILITY, _msix),
    pci.CAP_ID_EXPRESS: (pci.EXPRESS_CAPABILITY, _express),
}


def _capabilities(config: bytes) -> Iterator[Entry]:
    at = pci.HEADER.get(config, "capabilities")
    for _ in range(_ENTRIES):
        if not at:
            return
        number = config[at]
        if number in _CAPABILITIES:
            struct, decode = _CAPABILITIES[number]
            yield from decode(at, config[at : at + struct.size])
        else:
            yield at, f"[{at:02x}] Capability", f"{number:#04x}"
        at = config[at + 1]


def config_space(row: Row) -> list[Item]:
    """Return an item for every register of config space, by its name."""
    config = bytes.fromhex(row["config"]).ljust(pci.CONFIG_SIZE, b"\0")
    return [
        {"offset": offset, "register": name, "value": text}
        for offset, name, text in (*_header(config, row["bars"]), *_capabilities(config))
    ]


CONFIG = Kind(
    "config", "registers", "an offset in config space", config_space, ("offset", "register"),
    ("offset", "register", "value"),
    frozenset(("offset",)),
    offsets=True,
)  # fmt: skip
