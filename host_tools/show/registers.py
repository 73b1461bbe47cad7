"""The items of registers: of BAR0, and of config space with the words of `lspci -vv`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from bluebridge.device.layout import ioat, pci
from bluebridge.device.layout.fields import Access, Register, RegisterBlock, Struct
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.commands import name_of
from bluebridge.device.layout.mlx5 import init_segment
from bluebridge.device.layout.ntb.models import BY_NAME
from bluebridge.host_tools.show.text import Item, Kind, Row

_LINE = 64
_OPCODE = 0xFFF

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

_FORMATS: Mapping[str, Callable[[int], str]] = {
    "sign": lambda value: "+" if value else "-",
    "count": lambda value: str(value + 1),
    "place": lambda value: f"BAR={value & 7} offset={value & ~7:08x}",
    "bytes": lambda value: f"{128 << value} bytes",
    "speed": lambda value: _SPEEDS[value] if value < len(_SPEEDS) else "unknown",
    "kind": lambda value: f"type {value}" if value else "Endpoint",
}
_CAPABILITIES: Mapping[int, tuple[Struct, Mapping[int, tuple[str, str]]]] = {
    pci.CAP_ID_PM: (pci.PM_CAPABILITY, {
        0x00: ("Power Management", "version {version}"),
        0x04: ("Status", "D{power_state} NoSoftRst{no_soft_reset:sign}"),
    }),
    pci.CAP_ID_VPD: (pci.VPD_CAPABILITY, {0x00: ("Vital Product Data", "offset {address:#x}")}),
    pci.CAP_ID_MSIX: (pci.MSIX_CAPABILITY, {
        0x00: ("MSI-X", "Enable{enable:sign} Count={table_size:count} Masked{function_mask:sign}"),
        0x04: ("Vector table", "{table:place}"),
        0x08: ("PBA", "{pending:place}"),
    }),
    pci.CAP_ID_EXPRESS: (pci.EXPRESS_CAPABILITY, {
        0x00: ("Express", "(v{version}) {port_type:kind}"),
        0x04: ("DevCap", "MaxPayload {max_payload_supported:bytes} "
                         "ExtTag{extended_tag_supported:sign} RBE{role_based_errors:sign} "
                         "FLReset{function_reset:sign}"),
        0x08: ("DevCtl", "RlxdOrd{relaxed_ordering:sign} NoSnoop{no_snoop:sign} "
                         "MaxReadReq {max_read_request:bytes}"),
        0x0A: ("DevSta", "{device_status:#06x}"),
        0x0C: ("LnkCap", "Speed {link_speed_max:speed}, Width x{link_width_max}"),
        0x10: ("LnkCtl", "{link_control:#06x}"),
        0x12: ("LnkSta", "Speed {link_speed:speed}, Width x{link_width}"),
        0x28: ("DevCtl2", "{device_control2:#06x}"),
        0x30: ("LnkCtl2", "{link_control2:#06x}"),
    }),
}  # fmt: skip
"""The registers of each capability by their offsets: what `lspci -vv` calls them and says."""


def blocks_of(model: str) -> Sequence[RegisterBlock]:
    """Return the register tables of a function: `hca`, `mlx5`, `ioat`, or a bridge's model."""
    if model == "hca":
        return (bar0.HCR,)
    if model == "mlx5":
        return (init_segment.INIT_SEGMENT, init_segment.HEALTH_BUFFER)
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


class _Value(int):
    """A field's value, which a format names as lspci does: `{enable:sign}`."""

    def __format__(self, name: str) -> str:
        return _FORMATS[name](self) if name in _FORMATS else int.__format__(self, name)


def _capabilities(config: bytes) -> Iterator[Entry]:
    at = pci.HEADER.get(config, "capabilities")
    for _ in range(_ENTRIES):
        if not at:
            return
        number = config[at]
        if number in _CAPABILITIES:
            struct, registers = _CAPABILITIES[number]
            raw = config[at : at + struct.size].ljust(struct.size, b"\0")
            values = {field.name: _Value(struct.get(raw, field.name)) for field in struct}
            for offset, (name, text) in registers.items():
                yield at + offset, f"[{at:02x}] {name}", text.format(**values)
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
