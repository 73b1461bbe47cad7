"""The page of all words: `python -m bluebridge.device.mlx4.field_words`; `make docs` has it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.mlx4.commands.register import RULES
from bluebridge.device.mlx4.field_words.capabilities import CAPABILITIES
from bluebridge.device.mlx4.field_words.contexts import CONTEXTS
from bluebridge.device.mlx4.field_words.entries import ENTRIES
from bluebridge.device.mlx4.field_words.opcodes import REFUSED
from bluebridge.device.mlx4.field_words.ports import PORTS
from bluebridge.device.mlx4.field_words.queue_pair import QUEUE_PAIR
from bluebridge.device.mlx4.field_words.registers import REGISTERS
from bluebridge.device.mlx4.field_words.steering import STEERING
from bluebridge.device.mlx4.field_words.word import TableWords, Verdict, Word

ALL: tuple[TableWords, ...] = (
    *REGISTERS,
    *CAPABILITIES,
    *CONTEXTS,
    *QUEUE_PAIR,
    *ENTRIES,
    *STEERING,
    *PORTS,
)

_INTRODUCTION = """# What the adapter does with each field of its interface

Generated with `python -m bluebridge.device.mlx4.field_words` from `device/mlx4/field_words`;
`tests/unit/mlx4/test_field_words.py` fails where the function that is named does not have the
field. [registers.md](registers.md) says where each field is and what it means.

Fields of `device/layout/mlx4` that are not here are used: the device behaves as they say, and the
same test fails where no function has their names.

| word | meaning |
|---|---|
| checked | anything but what is noted is refused with the status |
| told | the device writes it |
| ignored | nothing depends on it, and why |

Functions stand in `device/mlx4`. A function with `(place)` has the field's place in a format and
not its name. Bits that no table has are ignored.
"""


def _meaning(word: Word) -> str:
    if word.verdict is Verdict.IGNORED:
        return word.note
    place = f"`{word.where}`" + (" (place)" if word.by_position else "")
    if word.status is not None:
        return f"{place}: {word.note}, else {word.status.name}"
    return f"{place}: {word.note}" if word.note else place


def _table(words: TableWords) -> Iterator[str]:
    yield f"### {words.table.name}"
    yield ""
    yield "| fields | word | where, or why |"
    yield "|---|---|---|"
    groups: dict[Word, list[str]] = {}
    for name, word in words.by_field().items():
        if word is not None:
            groups.setdefault(word, []).append(name)
    for word, names in groups.items():
        yield f"| {', '.join(names)} | {word.verdict} | {_meaning(word)} |"
    yield ""


def _commands() -> Iterator[str]:
    yield "## Commands"
    yield ""
    yield "Any other opcode ends with BAD_OP, and nothing is read or written."
    yield ""
    yield "| opcode | command | without INIT_HCA | what it does, or why not |"
    yield "|---|---|---|---|"
    for opcode in Opcode:
        rule = RULES.get(opcode)
        if rule is None:
            yield f"| {opcode:#05x} | {opcode.name} | | BAD_OP: {REFUSED.get(opcode, '')} |"
            continue
        says = (inspect.getdoc(rule.handler) or "").partition("\n\n")[0].replace("\n", " ")
        before = "yes" if rule.before_init else "OK" if rule.closing else "BAD_SYS_STATE"
        yield f"| {opcode:#05x} | {opcode.name} | {before} | {says} |"
    yield ""


def page() -> str:
    """Return the page as Markdown."""
    lines = [_INTRODUCTION, *_commands(), "## Fields", ""]
    for words in ALL:
        lines += _table(words)
    return "\n".join(lines).rstrip() + "\n"
