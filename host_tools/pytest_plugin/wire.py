"""What befalls the packets of a link in a test: each is a method, over with its `with` block."""

from __future__ import annotations

from functools import partial

from bluebridge.host_tools.lab.hardware import Hardware


class Wire:
    """Faults of one link, `a` unless `of` names another one.

    Conditions are those of docs/faults.md: `wire.drop(qp=1, message=3, psn="+4", transmission=1)`,
    `wire.corrupt(probability=0.01, seed=7)`, `wire.delay(2)`. A rule counts what it has `taken`;
    `release()` of `wire.hold()` lets go of what it keeps, as does the end of the block.
    """

    def __init__(self, hardware: Hardware, link: str = "a") -> None:
        self.of = partial(Wire, hardware)
        self.drop = partial(hardware.drop, link)
        self.corrupt = partial(hardware.corrupt, link)
        self.flip = partial(hardware.flip, link)
        self.duplicate = partial(hardware.duplicate, link)
        self.delay = partial(hardware.delay, link)
        self.rate = partial(hardware.rate, link)
        self.hold = partial(hardware.hold, link)
        self.mark = partial(hardware.mark, link)
        self.rewrite = partial(hardware.rewrite, link)
