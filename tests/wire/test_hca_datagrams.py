"""Datagrams, management datagrams on QP1, and Ethernet."""

from __future__ import annotations

import ipaddress

import pytest

from bluebridge.device.layout.net.ethernet import (
    ARP,
    ARP_REQUEST,
    BROADCAST,
    ETHERNET,
    ETHERTYPE_ARP,
)
from bluebridge.device.layout.net.roce import GRH, GRH_NEXT_BTH, GRH_SIZE, GSI_QKEY, GSI_QPN
from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.netif import NetInterface
from bluebridge.guest.verbs import (
    QpInit,
    QpType,
    RecvWr,
    RoceAddress,
    SendFlags,
    SendWr,
    VerbsError,
    WcFlags,
    WcStatus,
    WrOpcode,
)
from tests.models.players import PATTERN, QKEY, Player

OK = WcStatus.SUCCESS
Contexts = tuple[Context, Context]


def datagram(a: Player, b: Player, length: int, qkey: int = QKEY, **more: int) -> SendWr:
    """A datagram from a to b."""
    ah = b.ctx.address_vector(b.ctx.address)
    wr = SendWr(1, WrOpcode.SEND, [a.sge(0, length)], address_vector=ah)
    wr.remote_qpn, wr.remote_qkey = b.qp.qpn, qkey
    for name, value in more.items():
        setattr(wr, name, value)
    return wr


@pytest.fixture(params=["two HCAs", "loopback"])
def pair(request: pytest.FixtureRequest, contexts: Contexts) -> tuple[Player, Player]:
    """Two UD players."""
    a, b = contexts
    players = Player(a, QpType.UD), Player(b if request.param == "two HCAs" else a, QpType.UD)
    for player in players:
        player.start_datagrams()
    return players


def test_datagram(pair: tuple[Player, Player]) -> None:
    a, b = pair
    a.view[:] = PATTERN
    b.receive(4)
    a.qp.post_send(datagram(a, b, 1000))
    a.expect(OK)
    (wc,) = b.expect(OK)
    assert (wc.byte_len, wc.src_qp, wc.smac) == (1000 + GRH_SIZE, a.qp.qpn, a.ctx.ethernet_port.mac)
    assert wc.flags == WcFlags.GRH
    grh = bytes(b.view[:GRH_SIZE])
    assert GRH.get(grh, "version") == 6
    assert GRH.get(grh, "next_header") == GRH_NEXT_BTH
    assert GRH.get_raw(grh, "sgid") == a.ctx.ethernet_port.gids[0]
    assert GRH.get_raw(grh, "dgid") == b.ctx.ethernet_port.gids[0]
    assert bytes(b.view[GRH_SIZE : GRH_SIZE + 1000]) == PATTERN[:1000]


def test_datagram_with_immediate_and_inline(contexts: Contexts) -> None:
    a, b = Player(contexts[0], QpType.UD, inline=128), Player(contexts[1], QpType.UD)
    for player in (a, b):
        player.start_datagrams()
    b.receive()
    wr = datagram(a, b, 0, imm=0x55)
    wr.opcode, wr.inline_data = WrOpcode.SEND_WITH_IMM, PATTERN[:100]
    a.qp.post_send(wr)
    a.expect(OK)
    (wc,) = b.expect(OK)
    assert wc.flags == WcFlags.GRH | WcFlags.WITH_IMM
    assert bytes(b.view[GRH_SIZE : GRH_SIZE + 100]) == PATTERN[:100]


def test_wrong_qkey_and_missing_receive(pair: tuple[Player, Player]) -> None:
    """Datagrams that cannot be taken are lost without a word."""
    a, b = pair
    a.qp.post_send(datagram(a, b, 10))
    a.expect(OK)
    b.receive()
    a.qp.post_send(datagram(a, b, 10, QKEY + 1))
    a.expect(OK)
    b.silent(0)
    a.qp.post_send(datagram(a, b, 20))
    a.expect(OK)
    (wc,) = b.expect(OK)
    assert wc.byte_len == 60


def test_datagram_to_nobody(pair: tuple[Player, Player]) -> None:
    a, b = pair
    b.receive()
    a.qp.post_send(datagram(a, b, 10, remote_qpn=0x3FF))
    wr = datagram(a, b, 10)
    wr.address_vector = RoceAddress(b.ctx.ethernet_port.gids[0], b"\x02\x11\x22\x33\x44\x55")
    a.qp.post_send(wr)
    a.expect(OK, OK)
    b.silent(0)


def test_datagram_needs_an_address(pair: tuple[Player, Player]) -> None:
    with pytest.raises(VerbsError, match="address handle"):
        pair[0].qp.post_send(SendWr(1, WrOpcode.SEND, [pair[0].sge(0, 1)]))


def gsi_player(ctx: Context) -> Player:
    """A player on QP1."""
    player = Player(ctx, QpType.GSI, sges=1)
    player.qp.modify_init(qkey=GSI_QKEY)
    player.qp.modify_rtr()
    player.qp.modify_rts()
    return player


@pytest.mark.parametrize("loopback", [False, True])
def test_management_datagrams(contexts: Contexts, loopback: bool) -> None:
    a = gsi_player(contexts[0])
    b = a if loopback else gsi_player(contexts[1])
    a.view[:] = PATTERN
    for n in range(3):
        b.receive(n, 4096 * (n + 1), 512)
    for n in range(3):
        wr = SendWr(100 + n, WrOpcode.SEND, [a.sge(n, 256)], SendFlags.SIGNALED)
        wr.address_vector = b.ctx.address_vector(b.ctx.address)
        wr.remote_qpn, wr.remote_qkey = GSI_QPN, GSI_QKEY
        a.qp.post_send(wr)
    done = a.wait(3) if not loopback else a.wait(6)
    received = [wc for wc in (done if loopback else b.wait(3)) if wc.wr_id < 100]
    assert all(wc.status is OK for wc in done)
    assert [wc.wr_id for wc in received] == [0, 1, 2]
    smac = a.ctx.ethernet_port.mac
    for n, wc in enumerate(received):
        assert (wc.src_qp, wc.byte_len, wc.smac) == (GSI_QPN, 256 + GRH_SIZE, smac)
        start = 4096 * (n + 1) + GRH_SIZE
        assert bytes(b.view[start : start + 256]) == PATTERN[n : n + 256]


def test_queue_pair_one_exists_once(contexts: Contexts) -> None:
    gsi_player(contexts[0])
    with pytest.raises(VerbsError, match="QP1 is in use"):
        Player(contexts[0], QpType.GSI)


# -- Ethernet ------------------------------------------------------------------------------------


def test_resolve(contexts: Contexts) -> None:
    with NetInterface(contexts[0], "10.1.0.1") as a, NetInterface(contexts[1], "10.1.0.2") as b:
        assert a.resolve("10.1.0.2") == contexts[1].ethernet_port.mac
        assert b.resolve("10.1.0.1") == contexts[0].ethernet_port.mac
        assert a.resolve("10.1.0.1") == contexts[0].ethernet_port.mac
        gid = bytes(10) + b"\xff\xff" + ipaddress.IPv4Address("10.1.0.1").packed
        assert contexts[0].ethernet_port.gids[a.gid_index] == gid
        with pytest.raises(TimeoutError, match=r"10\.1\.0\.77 does not answer"):
            a.resolve("10.1.0.77", timeout=0.05)
        with pytest.raises(ValueError, match="no router"):
            a.resolve("192.168.0.1")
        a.forget("10.1.0.2")
        assert a.resolve("10.1.0.2") == contexts[1].ethernet_port.mac


def test_many_requests(contexts: Contexts) -> None:
    """Receive buffers come back: more frames than there are buffers."""
    with NetInterface(contexts[0], "10.1.0.1") as a, NetInterface(contexts[1], "10.1.0.2"):
        for _ in range(150):
            a.forget("10.1.0.2")
            assert a.resolve("10.1.0.2") == contexts[1].ethernet_port.mac


def test_frames_that_are_no_arp(contexts: Contexts) -> None:
    """Garbage on the wire does not disturb the interface."""
    raw = Player(contexts[0], QpType.RAW_ETH)
    raw.qp.modify_init()
    raw.qp.modify_rtr()
    raw.qp.modify_rts()
    mac = raw.ctx.ethernet_port.mac
    header = bytes(ETHERNET.pack(dmac=BROADCAST, smac=mac, ethertype=ETHERTYPE_ARP))
    asking = ARP.pack(hardware=1, protocol=0x800, hardware_size=6, protocol_size=4)
    ARP.set(asking, "operation", ARP_REQUEST)
    frames = [b"", header, header + b"\xff" * 28, header + bytes(asking), PATTERN[:1514]]
    with NetInterface(contexts[1], "10.1.0.2"):
        for frame in frames:
            raw.view[: len(frame)] = frame
            raw.qp.post_send(SendWr(1, WrOpcode.SEND, [raw.sge(0, len(frame))]))
            raw.wait(1)
        raw.qp.destroy()
        with NetInterface(contexts[0], "10.1.0.1") as a:
            assert a.resolve("10.1.0.2") == contexts[1].ethernet_port.mac


def test_frame_to_itself_is_not_received(contexts: Contexts) -> None:
    ctx = contexts[0]
    a = Player(ctx, QpType.RAW_ETH)
    a.qp.modify_init()
    a.qp.post_recv(RecvWr(0, [a.sge(4096, 2048)]))
    a.qp.modify_rtr()
    a.qp.modify_rts()
    ctx.ethernet_port.steer_frames(a.qp.qpn)
    mac = ctx.ethernet_port.mac
    frame = bytes(ETHERNET.pack(dmac=BROADCAST, smac=mac, ethertype=0x88B5)) + bytes(50)
    a.view[: len(frame)] = frame
    a.qp.post_send(SendWr(1, WrOpcode.SEND, [a.sge(0, len(frame))]))
    a.expect(OK)
    a.silent(0)


def test_ethernet_queue_pair_takes_frames(contexts: Contexts) -> None:
    a, b = Player(contexts[0], QpType.RAW_ETH), Player(contexts[1], QpType.RAW_ETH)
    for player in (a, b):
        player.qp.modify_init()
        player.receive()
        player.qp.modify_rtr()
        player.qp.modify_rts()
        player.ctx.ethernet_port.steer_frames(player.qp.qpn)
    dmac, smac = b.ctx.ethernet_port.mac, a.ctx.ethernet_port.mac
    frame = bytes(ETHERNET.pack(dmac=dmac, smac=smac, ethertype=0x88B5)) + PATTERN[:200]
    a.view[8192 : 8192 + len(frame)] = frame
    a.qp.post_send(SendWr(1, WrOpcode.SEND, [a.sge(8192, 100), a.sge(8292, len(frame) - 100)]))
    a.expect(OK)
    (wc,) = b.expect(OK)
    assert wc.byte_len == len(frame)
    assert bytes(b.view[: len(frame)]) == frame


def test_closing_uses_nothing_up(contexts: Contexts) -> None:
    ctx = contexts[0]
    for _ in range(20):
        NetInterface(ctx, "10.1.0.1").close()
    init = QpInit(QpType.RC, ctx.create_cq(4), ctx.create_cq(4))
    ctx.alloc_pd().create_qp(init)
