"""Packets that would take a part of the subnet down: it stays in service.

Any packets are the fuzzer's (`mads` in `tests/fuzz`).
"""

from __future__ import annotations

import pytest

from bluebridge.device.fabric.subnet.packets import smp_to
from bluebridge.device.layout.ib.link import (
    LINK_ACTIVE,
    LINK_DOWN,
    PHYSICAL_DISABLED,
    PHYSICAL_POLLING,
)
from bluebridge.device.layout.ib.mad import PORT_INFO, SMP, Method, MgmtClass, SmpAttribute
from tests.models.ib_node import Subnet, smp


def deliver(subnet: Subnet, payload: bytes, source: bytes, target: bytes, qpn: int) -> None:
    """A packet of guest a, past its driver; the receives of both guests may run out."""
    message = smp_to(source, target, payload)
    message.source_qpn = message.target_qpn = qpn
    message.qkey = 0x80010000 if qpn else 0
    subnet.a.port.send(message)


def healthy(subnet: Subnet, caplog: pytest.LogCaptureFixture) -> None:
    """No port failed; links that were told to go down come up and into service again."""
    assert not caplog.records, caplog.text
    subnet.assert_in_service()


@pytest.mark.parametrize(
    ("state", "physical"),
    [(LINK_DOWN, 0), (0, PHYSICAL_POLLING), (0, PHYSICAL_DISABLED)],
    ids=["down", "polling", "disabled"],
)
def test_port_0_of_the_switch_cannot_be_taken_down(
    subnet: Subnet, caplog: pytest.LogCaptureFixture, state: int, physical: int
) -> None:
    """It has no cable; if it could, one guest would take management away from the other."""
    agent = subnet.fabric.switch.agent
    info = bytearray(agent.info)
    PORT_INFO.set(info, "state", state)
    PORT_INFO.set(info, "physical_state", physical)
    request = smp(SmpAttribute.PORT_INFO, method=Method.SET, payload=info)
    (lid,) = agent.lids
    deliver(subnet, bytes(request), b"\0\2", lid, 0)
    assert (agent.link_up, agent.state) == (True, LINK_ACTIVE)
    deliver(subnet, bytes(smp(SmpAttribute.NODE_INFO)), b"\0\2", lid, 0)
    answers = [mad for _, mad in subnet.a.mads(subnet.a.smi)]
    assert [answer[3] for answer in answers] == [Method.GET_RESP] * 2
    healthy(subnet, caplog)


def test_an_smp_with_every_field_at_its_end(
    subnet: Subnet, caplog: pytest.LogCaptureFixture
) -> None:
    packet = bytearray(b"\xff" * 256)
    packet[1] = MgmtClass.SUBN_DIRECTED
    for count in (0, 1, 62, 63, 64, 255):
        for pointer in (0, count, count + 1, 255):
            for status in (0, 0x8000):
                SMP.set(packet, "hop_count", count)
                SMP.set(packet, "hop_pointer", min(pointer, 255))
                SMP.set(packet, "status", status)
                deliver(subnet, bytes(packet), b"\xff\xff", b"\xff\xff", 0)
    healthy(subnet, caplog)


@pytest.mark.parametrize("back", [False, True])
def test_an_smp_that_goes_on_to_the_switch_itself_ends_there(
    subnet: Subnet, caplog: pytest.LogCaptureFixture, back: bool
) -> None:
    """A directed route whose last part, by LID, leads to the switch: no packet goes round."""
    lid = int.from_bytes(next(iter(subnet.fabric.switch.agent.lids)), "big")
    request = smp(SmpAttribute.NODE_INFO, path=b"")
    for field in ("dr_dlid", "dr_slid"):
        SMP.set(request, field, lid)
    SMP.set(request, "hop_pointer", int(back))
    SMP.set(request, "status", 0x8000 * back)
    for target in (b"\xff\xff", lid.to_bytes(2, "big")):
        deliver(subnet, bytes(request), b"\0\2", target, 0)
    healthy(subnet, caplog)


def test_an_answer_to_a_directed_route_that_began_by_lid(subnet: Subnet) -> None:
    """The switch answers where the LID part leads to it, along the LID of who asked."""
    lid = int.from_bytes(next(iter(subnet.fabric.switch.agent.lids)), "big")
    request = smp(SmpAttribute.NODE_INFO, path=b"")
    SMP.set(request, "dr_dlid", lid)
    SMP.set(request, "dr_slid", subnet.a.agent.lid)
    SMP.set(request, "hop_pointer", 1)
    deliver(subnet, bytes(request), b"\0\2", lid.to_bytes(2, "big"), 0)
    ((_, answer),) = subnet.a.mads(subnet.a.smi)
    assert answer[3] == Method.GET_RESP
