"""Reliable connections over links that lose, delay and repeat messages.

Everything arrives once and in order, or the queue pair ends with the status for it.
"""

from __future__ import annotations

from random import Random

import pytest

from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from tests.models.faulty_pair import Links
from tests.models.long_messages import LongPair
from tests.models.lossy_traffic import Traffic
from tests.models.rdma_node import Pair, SendOpcode, inline

SEEDS = range(40)
TIMEOUT = 8
"""Of an acknowledgement: 4.096 us * 2^8, so 1 ms."""


def disturbed(seed: int) -> Traffic:
    """Traffic over links with rules that the seed chooses."""
    random = Random(seed)
    pair = Pair().connect(rts={"pri_ack_timeout": TIMEOUT, "retry_count": 7})
    links = Links(pair)
    for _ in range(random.randint(1, 4)):
        action = random.choice(["drop", "delay", "duplicate"])
        time = f" {random.choice([0, 0.4, 1.2, 3])}" if action != "drop" else ""
        link = random.choice(["a/1", "b/1"])
        direction = random.choice(["in", "out", "both"])
        chance = random.choice([0.02, 0.1, 0.3])
        words = f"{action}{time} direction={direction} probability={chance} seed={seed}"
        links.rule(link, words)
    traffic = Traffic(pair, random)
    traffic.run()
    return traffic


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mix_arrives_once_and_in_order(seed: int) -> None:
    disturbed(seed).check()


@pytest.mark.parametrize("words", [
    "drop opcode=WRITE skip=1 count=1",
    "drop kind=response skip=1 count=1",
    "duplicate opcode=WRITE",
    "duplicate 3 kind=request,response",
    "delay 80 opcode=WRITE skip=1 count=1",
])  # fmt: skip
@pytest.mark.parametrize("opcode", [SendOpcode.RDMA_WRITE, SendOpcode.RDMA_READ, SendOpcode.SEND])
def test_a_long_message_survives_the_loss_of_a_part(words: str, opcode: SendOpcode) -> None:
    """A part that is late by more than the timeout of 67 ms is sent again, and taken once."""
    pair = LongPair(rq_shift=6).connect()
    name = {SendOpcode.RDMA_READ: "READ", SendOpcode.SEND: "SEND"}.get(opcode, "WRITE")
    pair.receive()
    if opcode is SendOpcode.RDMA_READ:
        pair.target[:], pair.source[:] = pair.source[:], bytes(len(pair.source))
    rule = Links(pair).rule("a/1", words.replace("WRITE", name))
    pair.post(opcode)
    pair.run(0.5)
    assert [wc.status for wc in pair.a.completions(pair.qa)] == [0]
    assert pair.source[: pair.length] == pair.target[: pair.length]
    receives = [wc.length for wc in pair.b.completions(pair.qb)]
    assert receives == ([pair.length] if opcode is SendOpcode.SEND else [])
    assert rule.taken


def test_a_dead_link_is_the_requesters_error_and_the_port_stays_up() -> None:
    pair = Pair().connect()
    rule = Links(pair).rule("b/1", "drop")
    pair.a.post_send(pair.qa, SendOpcode.SEND, inline(b"x"))
    pair.run(0.3)
    assert [wc.status for wc in pair.a.completions(pair.qa)] == [
        CompletionStatus.TRANSPORT_RETRY_EXC_ERR
    ]
    assert pair.a.port.link_up and pair.b.port.link_up
    assert not pair.a.events(EventType.PORT_CHANGE)[1:]
    assert rule.taken == 3  # the first try and two more
