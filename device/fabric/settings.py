"""The settings of the networks that the ports of a server are on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The form of messages on the networks of a server, their timers, and the rights of ports.

    `packets`: RoCE packets in place of whole messages. `ack_timeout_factor`: how many times as long
    as they say acknowledge time-outs of less than half a second of such packets are. `managed`:
    whether the switch of an InfiniBand network has a subnet manager of its own; without one it
    sends traps to software in a guest that has to be one. `trusting`: whether ports on Ethernet may
    use each other's addresses. `fast_rnr`: RNR timer code 0 is a millisecond for whole messages.
    """

    packets: bool = False
    ack_timeout_factor: float = 1.0
    managed: bool = True
    trusting: bool = False
    fast_rnr: bool = False


MESSAGES = NetworkSettings()
