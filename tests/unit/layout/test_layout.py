"""The tables of registers and structures are consistent."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from random import Random

import pytest

from bluebridge.device import layout
from bluebridge.device.layout.fields import RegisterBlock, Struct, Value
from bluebridge.device.layout.mlx4 import bar0, contexts, uar
from bluebridge.device.layout.reference import reference


def _tables() -> Iterator[tuple[str, Struct | RegisterBlock]]:
    for module in pkgutil.walk_packages(layout.__path__, "bluebridge.device.layout."):
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            if isinstance(value, Struct | RegisterBlock):
                yield f"{module.name}.{name}", value


STRUCTS = {name: table for name, table in _tables() if isinstance(table, Struct)}
BLOCKS = {name: table for name, table in _tables() if isinstance(table, RegisterBlock)}


def _settable(table: Struct) -> list[str]:
    """Fields whose bits no field before them has claimed (unions overlap on purpose)."""
    claimed = 0
    names = []
    for item in table.fields:
        shift = (table.size - item.offset - item.width) * 8
        own = (item.mask << item.low) << shift
        if not own & claimed:
            names.append(item.name)
            claimed |= own
    return names


BIG_ENDIAN = [name for name, table in STRUCTS.items() if table.order == "big"]


@pytest.mark.parametrize("name", BIG_ENDIAN)
def test_what_is_packed_is_unpacked(name: str) -> None:
    table, dice = STRUCTS[name], Random(name)
    items = [table.field(each) for each in _settable(table)]
    for _ in range(20):
        values: dict[str, Value] = {
            item.name: dice.randbytes(item.width)
            if item.raw
            else dice.choice((0, item.mask, dice.randint(0, item.mask)))
            for item in items
        }
        packed = table.pack(values)
        assert len(packed) == table.size
        unpacked = table.unpack(packed)
        assert {key: unpacked[key] for key in values} == values


@pytest.mark.parametrize("name", STRUCTS)
def test_a_short_structure_is_refused(name: str) -> None:
    table = STRUCTS[name]
    with pytest.raises(ValueError, match="expected"):
        table.unpack(bytes(table.size - 1))


@pytest.mark.parametrize("name", BLOCKS)
def test_registers_are_found_by_offset(name: str) -> None:
    block = BLOCKS[name]
    for index in {0, block.count - 1}:
        for register in block.registers:
            found = block.find(block.at(register.name, index))
            assert found == (index, register)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        contexts.MPT.pack(pd=1 << 17)
    with pytest.raises(KeyError):
        contexts.MPT.pack(nonsense=1)


def test_doorbells_decode_to_their_fields() -> None:
    found = uar.UAR.find(128 * uar.PAGE_SIZE + uar.SEND_DOORBELL)
    assert found is not None
    assert found[0] == 128
    assert found[1].decode(uar.send_doorbell(0x208)) == "send qpn=0x208"
    control = bar0.HCR.find(bar0.HCR_BASE + 0x18)
    assert control is not None
    assert control[1].decode(bar0.HCR_GO | 4) == "control go=1 opcode=4"


def test_known_offsets_of_the_queue_pair_context() -> None:
    """Spot checks against the driver's structure: inc/qp.h, struct mlx4_qp_context."""
    table = contexts.QPC
    assert table.field("remote_qpn").offset == 0x14
    assert table.field("pri_dmac").offset == 0x18 + 0x26
    assert table.field("doorbell_record").offset == 0xA0
    assert table.field("mtt_addr").offset == 0xCB


def test_the_reference_has_every_field_of_every_table_once() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| 0x")]
    fields = sum(len(table.fields) for table in STRUCTS.values())
    assert len(rows) == fields + sum(len(block.registers) for block in BLOCKS.values())
