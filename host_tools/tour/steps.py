"""The steps of the tour: what is done, what it shows, and what the log must have then.

`python -m bluebridge.host_tools.tour.steps > docs/tour.md` writes the page that tells of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bluebridge.device.layout.buslog import Kind

_INTRODUCTION = """# Tour: what an RDMA adapter does

    bluebridge tour

This starts two guests, does what is below, and prints for each step the lines of the bus log that
show it, with an address that plays them in a browser while the tour lasts. It takes a few minutes,
waits for Enter between the steps, and ends the guests. Each step is checked: the command fails when
the log does not have what is said here. This page is made from the same data
(`host_tools/tour/steps.py`). The program that runs in the guests is
`host_tools/tour/guest_program.py`.
"""
_END = """## Where to go from here

- [How an RDMA adapter works](how-it-works.md): the same in one text.
- [Send and receive between two guests](verbs.md): a program of your own.
- [Faults of links](faults.md): more that can go wrong.
- [A bridge between the guests](ntb.md): `bluebridge tour --bridge` shows it at the end.
"""


@dataclass(frozen=True, slots=True)
class Sight:
    """An event that the log must have: guest `a` or `b`, kind, words; `says` explains it."""

    guest: str
    kind: Kind
    words: tuple[str, ...]
    says: str


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the tour.

    `commands` are lines for `bluebridge`; `program` is the word for the program in the guests,
    empty for none. It has to end with `status`. The log then has `sights` in this order, and
    nothing that is `never`. `text` is Markdown.
    """

    title: str
    text: str
    sights: tuple[Sight, ...]
    program: str = ""
    status: str = "SUCCESS"
    commands: tuple[str, ...] = ()
    never: Sight | None = None


_BELL = Sight(
    "b", Kind.MMIO_WRITE, ("send qpn=",),
    "The doorbell: 4 bytes in the UAR page. They name the queue pair and nothing else.",
)  # fmt: skip
_FETCH = Sight(
    "b", Kind.DMA_READ, ("WQE qpn=", "RDMA_WRITE"),
    "The HCA fetches the WQE: operation, remote address, remote key, where the bytes are.",
)  # fmt: skip
_SENT = Sight("b", Kind.WIRE, ("RC WRITE",), "The request crosses the wire with a number, its PSN.")
_LANDED = Sight(
    "a", Kind.DMA_WRITE, ("payload",),
    "The other HCA writes the bytes to memory. No program of guest a takes part.",
)  # fmt: skip
_ACK = Sight("a", Kind.WIRE, ("ACK >",), "It answers: the request arrived.")
_DONE = Sight(
    "b", Kind.DMA_WRITE, ("CQE cqn=", "RDMA_WRITE"),
    "The completion entry: the program that polls the completion queue sees that it is done.",
)  # fmt: skip

STEPS = (
    Step(
        "A driver wakes the adapter",
        "A program opens the HCA of each guest. Before anything can be sent the driver talks to "
        "the HCA's firmware: it stores a command in the command register (HCR), rings, and waits. "
        "Queue pairs and memory regions are made this way, too.",
        (
            Sight(
                "b", Kind.COMMAND, ("QUERY_FW",),
                "The first command: which firmware is this, and how much memory does it need?",
            ),
            Sight(
                "b", Kind.COMMAND, ("SW2HW_MPT",),
                "A memory region is registered: from now on it has keys, an lkey and an rkey.",
            ),
            Sight(
                "b", Kind.COMMAND, ("RTR2RTS_QP",),
                "The queue pair is ready to send. It took three commands from RESET.",
            ),
        ),
        program="write",
    ),
    Step(
        "One RDMA WRITE",
        "`post_send` puts a work queue entry (WQE) into memory and rings a doorbell. All else is "
        "the hardware's work: eight bytes go from the memory of guest b to that of guest a.",
        (_BELL, _FETCH,
         Sight("b", Kind.DMA_READ, ("payload",), "It fetches the eight bytes themselves."),
         _SENT, _LANDED, _ACK, _DONE),
        program="write",
    ),
    Step(
        "Sleep instead of polling",
        "A program that does not want to poll arms its completion queue and sleeps. The HCA then "
        "writes an event entry and interrupts the processor.",
        (
            Sight("b", Kind.MMIO_WRITE, ("cq_arm",), "The queue is armed: tell me of the next."),
            _BELL, _DONE,
            Sight("b", Kind.DMA_WRITE, ("EQE eqn=", "COMP"), "The event entry names the queue."),
            Sight("b", Kind.IRQ, ("MSI-X",), "The interrupt: the driver looks at its events."),
        ),
        program="event",
    ),
    Step(
        "A key that is wrong",
        "The same WRITE with an rkey that guest a never gave out. Its HCA refuses: the "
        "bytes do not reach memory, the sender's work request ends with an error, and its queue "
        "pair goes to the error state.",
        (
            _BELL, _SENT,
            Sight("a", Kind.WIRE, ("NAK_REMOTE_ACCESS",), "The answer is a NAK that says why."),
            Sight(
                "b", Kind.DMA_WRITE, ("CQE cqn=", "REM_ACCESS_ERR"),
                "The completion entry has a syndrome; the program sees `REM_ACCESS_ERR`.",
            ),
        ),
        program="key", status="REM_ACCESS_ERR", never=_LANDED,
    ),
    Step(
        "A packet gets lost",
        "A rule of the link drops one request. Nobody is told: guest b's HCA misses the answer, "
        "waits for the timeout of its queue pair, and sends the request again with the same PSN.",
        (
            _BELL, _SENT,
            Sight("b", Kind.FAULT, ("drop",), "The rule takes the message away."),
            Sight("b", Kind.WIRE, ("RC WRITE",), "The same request again, milliseconds later."),
            _LANDED, _DONE,
        ),
        commands=("link {b} drop --opcode WRITE --direction out --count 1",),
        program="write",
    ),
)  # fmt: skip


def page() -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION]
    parts += ["\n".join(_lines(number, step)) for number, step in enumerate(STEPS, start=1)]
    return "\n".join([*parts, _END])


def _lines(number: int, step: Step) -> Iterator[str]:
    yield f"## {number}. {step.title}\n"
    yield f"{step.text}\n"
    for line in step.commands:
        yield f"    bluebridge {line.format(a='a', b='b')}\n"
    yield "| guest | in the log | what it is |\n|---|---|---|"
    for sight in step.sights:
        words = " … ".join(sight.words)
        yield f"| {sight.guest} | `{sight.kind.name}`: `{words}` | {sight.says} |"
    yield f"\nThe program in guest b prints `RDMA_WRITE: {step.status}`."
    if step.never is not None:
        never = step.never
        yield f"The log has no `{never.kind.name}` of guest {never.guest} with `{never.words[0]}`."
    yield ""


if __name__ == "__main__":
    print(page(), end="")
