"""Words on registers of BAR0 and BAR2, and on the error buffer."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.bar0 import CATAS, CONTROL, HCR
from bluebridge.device.layout.mlx4.uar import BLUEFLAME, UAR
from bluebridge.device.mlx4.field_words.word import TableWords, ignored, told, used

_COMMAND = "commands/register.py: CommandRegister._command"
_DOORBELL = "registers/doorbells.py: UserAccessRegion"

REGISTERS = (
    TableWords(
        HCR,
        (
            (used(_COMMAND, by_position=True), "in_param_* in_modifier out_param_* token.token"),
            (used(_COMMAND, by_position=True), "control.event control.op_modifier control.opcode"),
            (used("commands/register.py: CommandRegister.write", by_position=True), "control.go"),
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
            (used("device.py: _resets", "any store that sets its bit", by_position=True), "reset"),
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
    TableWords(
        UAR,
        (
            (used(f"{_DOORBELL}.write", by_position=True), "send.qpn eq?.ci eq?.arm"),
            (
                used("rings/completion_queues.py: CompletionQueues.doorbell", by_position=True),
                "cq_arm.*",
            ),
        ),
    ),
    TableWords(
        BLUEFLAME,
        ((used("registers/blueflame.py: BlueFlame.write", by_position=True), "buffer*"),),
    ),
)
