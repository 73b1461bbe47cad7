"""The page of all words: `python -m bluebridge.device.mlx4.field_words`; `make docs` has it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.mlx4.commands.register import RULES
from bluebridge.device.mlx4.field_words.words import REFUSED, WORDS, Checked

_INTRODUCTION = """# What the adapter does with each field of its interface

Generated with `python -m bluebridge.device.mlx4.field_words` from `device/mlx4/field_words`;
`tests/unit/mlx4/test_field_words.py` fails where a function that is named does not have the
field. [registers.md](registers.md) says where each field is and what it means.

Fields of `device/layout/mlx4` that are not here are used: the device behaves as they say, or
writes them, and the same test fails where no function has their names. Of those that are here

| word | meaning |
|---|---|
| checked | anything but what is noted ends the command with BAD_PARAM |
| ignored | nothing depends on it, and why |

Functions stand in `device/mlx4`. Bits that no table has are ignored.
"""


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
    for table, words in WORDS:
        lines += [f"### {table.name}", "", "| fields | word | where, or why |", "|---|---|---|"]
        for names, word in words.items():
            if isinstance(word, Checked):
                says = f"checked | `{word.where}`: {word.wanted}"
            else:
                says = f"ignored | {word}"
            lines.append(f"| {', '.join(names.split())} | {says} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
