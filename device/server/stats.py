"""The counters of a server itself, for `bluebridge stats`: messages, retries, faults, the loop.

    stats       a line of JSON for each quantity: `name`, `type` and `unit` as OpenMetrics has them,
                `help`, and `samples`, each of which has `labels` and a `value`

Counts begin with the server; those of what went wrong on a port begin again when its adapter is
reset, as its driver sees them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.rdma.ports.counters import Trouble
from bluebridge.device.server.adapters import Adapter

Samples = list[tuple[dict[str, str], float]]

_RETRIES = {
    Trouble.TIMED_OUT: "no_answer",
    Trouble.SEQUENCE_NAK_CAME: "sequence_error",
    Trouble.RNR_NAK_CAME: "receiver_not_ready",
}
"""Why a requester sent again, as it is counted."""


@dataclass(frozen=True)
class Stats:
    """Answers with the counters of a server: of its loop, networks, HCAs by name, and faults."""

    loop: EventLoop
    networks: Sequence[LocalFabric]
    hcas: Mapping[str, Adapter]
    faults: FaultRules

    def lines(self, words: Sequence[str] = ()) -> list[str]:
        """Return the answer of the control socket."""
        calls: Samples = [({}, round(self.loop.longest, 6))]
        return [
            _line("messages", "counter", "", "Messages and frames on the networks of the ports, "
                  "by what became of them", self._messages()),
            _line("retries", "counter", "", "Times that a queue pair sent again, by port and "
                  "reason", self._retries()),
            _line("faults_taken", "counter", "", "What link rules and faults by name have taken",
                  self._faults()),
            _line("loop_longest_call_seconds", "gauge", "seconds", "The longest call of the "
                  "server's loop, which every guest of it waits for", calls),
        ]  # fmt: skip

    def _messages(self) -> Samples:
        counts = [network.statistics for network in self.networks]
        return [
            ({"outcome": "delivered"}, sum(each.delivered for each in counts)),
            ({"outcome": "lost"}, sum(each.lost for each in counts)),
        ]

    def _retries(self) -> Samples:
        return [
            (
                {"hca": name, "port": str(port.number), "reason": reason},
                port.diagnostics.counts.get(trouble, 0),
            )
            for name, hca in self.hcas.items()
            for port in hca.ports
            for trouble, reason in _RETRIES.items()
        ]

    def _faults(self) -> Samples:
        armed = ((name, hca.faults.taken) for name, hca in self.hcas.items())
        return [
            ({"by": "link_rules"}, self.faults.taken),
            *(({"by": "named_faults", "hca": name}, taken) for name, taken in armed),
        ]


def _line(name: str, kind: str, unit: str, text: str, samples: Samples) -> str:
    told = [{"labels": labels, "value": value} for labels, value in samples]
    row = {"name": name, "type": kind, "unit": unit, "help": text, "samples": told}
    return json.dumps(row, separators=(",", ":"))
