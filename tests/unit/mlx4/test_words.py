"""Every word of the engines has a number of the card, and no two words share one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import pytest

from bluebridge.device.ethernet.frames.verdicts import IP_GOOD, IS_IPV4, IS_TCP, L4_GOOD
from bluebridge.device.layout.mlx4.cqe import FrameStatus
from bluebridge.device.mlx4 import words
from bluebridge.device.rdma.refusal import Reason
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus, PairState


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (Reason, words.STATUSES),
        (PairState, words.STATES),
        (CompletionStatus, words.SYNDROMES),
        (AsyncEvent, words.EVENTS),
    ],
)
def test_each_word_has_a_number_of_its_own(kind: type[Enum], table: Mapping[Enum, int]) -> None:
    assert set(table) == set(kind)
    assert len(set(table.values())) == len(table)


def test_opcodes_and_operations_are_two_ways_of_one_table() -> None:
    for operation, opcode in enumerate(words.SEND_OPCODES):
        assert words.OPERATIONS[opcode] == operation
    unknown = [opcode for opcode in range(32) if words.OPERATIONS[opcode] == words.UNKNOWN]
    assert len(unknown) == 32 - len(words.SEND_OPCODES)


def test_findings_become_the_bits_of_a_status() -> None:
    found = IS_IPV4 | IS_TCP | IP_GOOD
    status = FrameStatus.IPV4 | FrameStatus.TCP | FrameStatus.IP_OK
    assert words.FRAME_STATUSES[found] == words.FRAME_STATUSES[found | L4_GOOD] == status
    assert words.FRAME_STATUSES[0] == 0
