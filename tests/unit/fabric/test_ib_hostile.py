"""Garbage for every agent of the subnet: nothing raises, the subnet stays in service."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bluebridge.device.fabric.subnet.packets import smp_to
from bluebridge.device.layout.ib.link import (
    LINK_ACTIVE,
    LINK_DOWN,
    PHYSICAL_DISABLED,
    PHYSICAL_POLLING,
)
from bluebridge.device.layout.ib.mad import (
    PORT_INFO,
    SMP,
    Method,
    MgmtClass,
    SmpAttribute,
)
from bluebridge.device.layout.ib.sa import SA_MAD, SaAttribute, SaMethod
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from tests.models.ib_node import PERMISSIVE, Subnet, smp

RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
ATTRIBUTES = [int(each) for group in (SmpAttribute, SmpAttribute) for each in group]
bodies = st.binary(min_size=256, max_size=256)
words = st.integers(0, 0xFFFFFFFF)


def deliver(subnet: Subnet, payload: bytes, source: bytes, target: bytes, qpn: int) -> None:
    """A packet of guest a, past its driver; the receives of both guests may run out."""
    message = smp_to(source, target, payload)
    message.source_qpn = message.target_qpn = qpn
    message.qkey = 0x80010000 if qpn else 0
    subnet.a.port.send(message)


def healthy(subnet: Subnet, caplog: pytest.LogCaptureFixture) -> None:
    """No port failed; links that were told to go down come up and into service again."""
    assert not caplog.records, caplog.text
    for agent in (subnet.a.agent, subnet.b.agent, *subnet.fabric.switch.node.ports.values()):
        if agent.peer is not None and not agent.link_up:
            agent.set_info(bytes(PORT_INFO.pack(physical_state=PHYSICAL_POLLING)))
    subnet.clock.run(1)
    assert (subnet.a.agent.state, subnet.b.agent.state) == (LINK_ACTIVE, LINK_ACTIVE)
    assert subnet.a.mad_ifc(smp(SmpAttribute.NODE_INFO))[3] == Method.GET_RESP


def question(payload: bytes, **fields: int) -> bytes:
    """A MAD for the administrator with these fields, and others of `payload`."""
    mad = bytearray(payload)
    mad[:3] = bytes((1, MgmtClass.SUBN_ADM, 2))
    for name, value in fields.items():
        SA_MAD.set(mad, name, int(value))
    return bytes(mad)


TARGETS = st.sampled_from((b"\0\1", b"\0\2", b"\0\3", b"\xff\xff", b"\xc0\0", b"\0\0"))
QUESTIONS = st.builds(
    question,
    bodies,
    method=st.sampled_from((1, 2, SaMethod.GET_TABLE, SaMethod.DELETE)) | st.integers(0, 255),
    attr_id=st.sampled_from([int(each) for each in SaAttribute]) | st.integers(0, 0xFFFF),
    component_mask=st.integers(0, (1 << 64) - 1) | st.integers(0, 0xFFFF),
    rmpp_flags=st.just(0) | st.integers(0, 7),
    rmpp_type=st.integers(0, 5),
    segment=words,
    length_or_window=words,
)
CLASSES = st.sampled_from((b"\1", b"\x81"))
SMPS = st.builds(lambda body, kind: body[:1] + kind + body[2:], bodies, CLASSES)
PACKETS = {
    "smps": st.tuples(SMPS, TARGETS, st.just(0)),
    "questions": st.tuples(QUESTIONS, st.just(b"\0\1"), st.just(1)),
    "any length": st.tuples(st.binary(max_size=300), TARGETS, st.sampled_from((0, 1, 2))),
}


@pytest.mark.parametrize("kind", PACKETS)
@RELAXED
@given(data=st.data())
def test_random_packets(
    subnet: Subnet, caplog: pytest.LogCaptureFixture, kind: str, data: st.DataObject
) -> None:
    """While an answer of several segments waits for acknowledgements."""
    table = question(bytes(256), method=SaMethod.GET_TABLE, attr_id=SaAttribute.NODE)
    deliver(subnet, table, b"\0\2", b"\0\1", 1)
    payload, target, qpn = data.draw(PACKETS[kind])
    deliver(subnet, payload, b"\0\2", target, qpn)
    healthy(subnet, caplog)


@RELAXED
@given(
    attribute=st.sampled_from(ATTRIBUTES),
    modifier=words | st.integers(0, 9),
    method=st.sampled_from((Method.GET, Method.SET)),
    payload=st.binary(min_size=64, max_size=64),
    directed=st.booleans(),
)
def test_smps_with_random_attributes(
    subnet: Subnet,
    caplog: pytest.LogCaptureFixture,
    attribute: int,
    modifier: int,
    method: Method,
    payload: bytes,
    directed: bool,
) -> None:
    path = b"\1" if directed else None
    request = smp(attribute, modifier, method=method, payload=payload, path=path)
    target = PERMISSIVE if directed else 1
    deliver(subnet, bytes(request), b"\0\2", target.to_bytes(2, "big"), 0)
    own = bytes(smp(attribute, modifier, method=method, payload=payload))
    status, _ = subnet.b.try_command(Opcode.MAD_IFC, own, 1, 3, out=True)
    assert status in (Status.OK, Status.BAD_PKT)
    healthy(subnet, caplog)


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
