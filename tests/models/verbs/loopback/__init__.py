"""A provider of verbs without a device: ends in one process, and copies from memory to memory.

    network = Network()
    with LoopbackDevice(network) as a, LoopbackDevice(network) as b: ...

It has reliable connected queue pairs without atomics, regions of all kinds, shared receive queues
and completion channels. Nothing runs beside its users: a request is executed when it is posted, or,
if the peer had no receive for it, when the peer posts one. Statuses are those of InfiniBand's
tables (vol. 1, 10.8.5.3 and 11.6.2), as on the HCA.
"""

from __future__ import annotations

from tests.models.verbs.loopback.device import LoopbackDevice
from tests.models.verbs.loopback.network import LoopbackAddress, Network

__all__ = ["LoopbackAddress", "LoopbackDevice", "Network"]
