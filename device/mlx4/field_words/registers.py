"""Words on registers of BAR0 and BAR2, and on the error buffer."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.bar0 import CATAS, CONTROL, HCR
from bluebridge.device.mlx4.field_words.word import TableWords, ignored, told

REGISTERS = (
    TableWords(
        HCR,
        (
            (
                told("commands/register.py: CommandRegister._complete", by_position=True),
                "control.status",
            ),
            (
                ignored("software tells old from new commands by it; it is given back as written"),
                "control.toggle",
            ),
        ),
    ),
    TableWords(
        CONTROL,
        (
            (
                told("settings/clock.py: read", "48 bits at 1 GHz", by_position=True),
                "clock",
            ),
            (told("registers/health.py: Health.read", by_position=True), "catas"),
            (
                ignored("reads as 0: nobody else owns the adapter; there are no other functions"),
                "ownership",
            ),
            (ignored("reads as 0: whoever reads it has it; resets are over at once"), "semaphore"),
            (ignored("there is no INTx: events come by MSI-X, or are polled for"), "clr_int"),
        ),
    ),
    TableWords(CATAS, ((told("registers/health.py: Health.fail"), "code text"),)),
)
