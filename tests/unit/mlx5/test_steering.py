"""Flow tables, TIRs and tables of queues: who gets a frame."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.fabric.messages import Frames, Train
from bluebridge.device.frames import receiving
from bluebridge.device.frames.frame import FrameHeaders
from bluebridge.device.layout.mlx5 import steering
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import NIC_VPORT, TIRC, HashFunction
from bluebridge.device.layout.mlx5.cqe import CQE
from bluebridge.device.layout.mlx5.objects import (
    CONTEXT,
    MODIFY_VPORT,
    VPORT_IN,
    TirField,
    VportField,
)
from bluebridge.device.layout.mlx5.steering import Action, Destination
from bluebridge.device.mlx5.steering import tables
from bluebridge.device.mlx5.steering.spreading import MAX_FLOWS, Hashes, Tir
from tests.models.mlx5_node import BROADCAST, Mlx5Node
from tests.models.mlx5_pairs import Net
from tests.models.mlx5_queue_node import QueueNode

ONES6 = b"\xff" * 6
OTHER = bytes.fromhex("020000000099")
GROUP = bytes.fromhex("01005e000005")
KEY = bytes(range(40))


@pytest.fixture(params=[Mlx5Node, QueueNode], ids=["tables", "registers"])
def net(request: pytest.FixtureRequest) -> Net:
    return Net(request.param)


def test_without_a_root_nobody_gets_a_frame(net: Net) -> None:
    assert net.arrivals(net.frame(net.b.mac)) == []


def test_addresses_are_compared_under_the_mask_of_their_group(net: Net) -> None:
    """Linux `en_fs.c: mlx5e_create_l2_table_groups`: whole addresses, then the bit of groups."""
    table = net.b.make_table()
    whole = net.b.make_group(table, 0, 3, dmac=ONES6)
    groups = net.b.make_group(table, 4, 4, dmac=b"\1\0\0\0\0\0")
    net.set(table, whole, 0, net.tir(0), dmac=net.b.mac)
    net.set(table, whole, 1, net.tir(1), dmac=BROADCAST)
    net.b.set_root(table)
    assert net.arrivals(net.frame(net.b.mac)) == [0]
    assert net.arrivals(net.frame(BROADCAST)) == [1]
    assert net.arrivals(net.frame(GROUP)) == []
    assert net.arrivals(net.frame(OTHER)) == []
    net.set(table, groups, 4, net.tir(2), dmac=b"\1\0\0\0\0\0")
    assert net.arrivals(net.frame(GROUP)) == [2]
    assert net.arrivals(net.frame(BROADCAST)) == [1]
    assert net.arrivals(net.frame(OTHER)) == []


def test_a_frame_goes_from_table_to_table(net: Net) -> None:
    """VLANs before addresses before types of traffic, as mlx5e has them."""
    vlans, addresses = net.b.make_table(), net.b.make_table()
    tagged = net.b.make_group(vlans, 0, 3, customer_tag=1, vid=0xFFF)
    untagged = net.b.make_group(vlans, 4, 4, customer_tag=1)
    whole = net.b.make_group(addresses, 0, 3, dmac=ONES6)
    net.set(vlans, tagged, 0, net.table(addresses), customer_tag=1, vid=7)
    net.set(vlans, untagged, 4, net.table(addresses))
    net.set(addresses, whole, 0, net.tir(3), dmac=net.b.mac)
    net.b.set_root(vlans)
    assert net.arrivals(net.frame(net.b.mac)) == [3]
    assert net.arrivals(net.frame(net.b.mac, b"\x81\0\0\7")) == [3]
    assert net.arrivals(net.frame(net.b.mac, b"\x81\0\0\x08")) == []
    assert net.arrivals(net.frame(OTHER, b"\x81\0\0\7")) == []


@pytest.mark.parametrize(
    ("mask", "value", "protocol", "ports", "wanted"),
    [
        ({"ip_version": 0xF}, {"ip_version": 4}, 17, (1, 2), True),
        ({"ip_version": 0xF}, {"ip_version": 6}, 17, (1, 2), False),
        ({"protocol": 0xFF}, {"protocol": 17}, 17, (1, 2), True),
        ({"protocol": 0xFF}, {"protocol": 17}, 6, (1, 2), False),
        ({"udp_dport": 0xFFFF}, {"udp_dport": 9}, 17, (1, 9), True),
        ({"udp_dport": 0xFFFF}, {"udp_dport": 9}, 6, (1, 9), False),
        ({"tcp_sport": 0xFFFF}, {"tcp_sport": 5}, 6, (5, 9), True),
        ({"tcp_sport": 0xFFFF}, {"tcp_sport": 5}, 6, (6, 9), False),
        (
            {"source": bytes(12) + b"\xff" * 4},
            {"source": bytes(12) + b"\x0a\0\0\1"}, 6, (1, 1), True,
        ),
        (
            {"destination": bytes(12) + b"\xff" * 4},
            {"destination": bytes(12) + b"\x0a\0\0\1"}, 6, (1, 1), False,
        ),
        ({"ethertype": 0xFFFF}, {"ethertype": 0x800}, 6, (1, 1), True),
        ({"ethertype": 0xFFFF}, {"ethertype": 0x86DD}, 6, (1, 1), False),
        ({"hop_limit": 0xFF}, {"hop_limit": 64}, 6, (1, 1), True),
    ],
)  # fmt: skip
def test_entries_match_headers(
    net: Net,
    mask: dict[str, int | bytes],
    value: dict[str, int | bytes],
    protocol: int,
    ports: tuple[int, int],
    wanted: bool,
) -> None:
    table = net.b.make_table()
    group = net.b.make_group(table, 0, 3, **mask)
    net.set(table, group, 0, net.tir(1), **value)
    net.b.set_root(table)
    assert net.arrivals(net.packet(protocol, *ports)) == [1] * wanted


def test_the_entry_with_the_lowest_index_wins_and_a_miss_goes_on(net: Net) -> None:
    last = net.b.make_table()
    everything = net.b.make_group(last, 0, 0)
    net.set(last, everything, 0, net.tir(3))
    table = net.b.make_table(miss_action=1, miss_table=last)
    some = net.b.make_group(table, 2, 3, protocol=0xFF)
    few = net.b.make_group(table, 0, 1, protocol=0xFF, udp_dport=0xFFFF)
    net.set(table, some, 3, net.tir(2), protocol=17)
    net.set(table, some, 2, net.tir(0), protocol=17)
    net.set(table, few, 0, net.tir(1), protocol=17, udp_dport=5)
    net.b.set_root(table)
    assert net.arrivals(net.packet(17, 1, 5)) == [1]
    assert net.arrivals(net.packet(17, 1, 6)) == [0]
    assert net.arrivals(net.packet(6, 1, 6)) == [3]
    data = bytes(steering.MODIFY_FLOW_TABLE.pack(fields=1, table=table, miss_action=0))
    net.b.command(Opcode.MODIFY_FLOW_TABLE, data)
    assert net.arrivals(net.packet(6, 1, 6)) == []


def test_an_entry_drops_copies_counts_and_changes(net: Net) -> None:
    table = net.b.make_table()
    group = net.b.make_group(table, 0, 0)
    counter = net.b.make(Opcode.ALLOC_FLOW_COUNTER)
    net.b.set_root(table)
    both = net.tir(0) + net.tir(2)
    net.set(table, group, 0, both, [counter], action=Action.FORWARD | Action.COUNT)
    frame = net.frame(OTHER)
    assert net.arrivals(frame) == [0, 2]
    modify = net.b.entry(table, group, 0, action=Action.DROP)
    changed = bytearray(modify)
    changed[0x1B] = steering.EntryField.ACTION
    net.b.command(Opcode.SET_FLOW_TABLE_ENTRY, bytes(changed), op_mod=steering.MODIFY_ENTRY)
    assert net.arrivals(frame) == []
    query = bytes(steering.QUERY_FLOW_COUNTER.pack(counter=counter))
    answer = net.b.command(Opcode.QUERY_FLOW_COUNTER, query)
    assert int.from_bytes(answer[0x10:0x18], "big") == 1
    assert int.from_bytes(answer[0x18:0x20], "big") == len(frame)


def test_the_tag_of_an_entry_is_told(net: Net) -> None:
    table = net.b.make_table()
    net.set(table, net.b.make_group(table, 0, 0), 0, net.tir(0), tag=0xABCDE)
    net.b.set_root(table)
    net.b.post_receive(net.rqs[0])
    net.a.send(net.sq, net.frame(OTHER))
    (cqe,) = net.b.completions(net.rqs[0])
    assert CQE.get(cqe, "qpn") == 0xABCDE


def test_deleted_entries_match_nothing(net: Net) -> None:
    table = net.b.steer(net.tirs[0])
    assert net.arrivals(net.frame(net.b.mac)) == [0]
    data = bytes(steering.FLOW_TABLE.pack(table=table, index=0))
    net.b.command(Opcode.DELETE_FLOW_TABLE_ENTRY, data)
    assert net.arrivals(net.frame(net.b.mac)) == []
    assert net.arrivals(net.frame(BROADCAST)) == [0]
    assert net.b.status(Opcode.DELETE_FLOW_TABLE_ENTRY, data) == Status.BAD_RES


# -- spreading -----------------------------------------------------------------------------------


def spread(net: Net, **values: object) -> int:
    """A TIR over all rings, that hashes addresses and ports of UDP over IPv4."""
    what: dict[str, object] = {
        "hash_function": HashFunction.TOEPLITZ, "key": KEY, "hash_udp": 1, "hash_fields": 0xF,
        **values,
    }  # fmt: skip
    tir = net.b.make_tir(rqt=net.b.make_rqt(net.rqs), **what)  # type: ignore[arg-type]
    net.b.steer(tir)
    return tir


def toeplitz(data: bytes) -> int:
    """The hash by its definition: a register of 32 bits of the key that moves along the data."""
    wide, result = int.from_bytes(KEY, "big"), 0
    for place in range(8 * len(data)):
        if data[place // 8] << place % 8 & 0x80:
            result ^= wide >> 320 - 32 - place & 0xFFFFFFFF
    return result


def test_flows_are_spread_by_their_hash(net: Net) -> None:
    spread(net)
    used = set()
    for port in range(1, 33):
        ((place, value, hashed),) = net.hashes(net.packet(17, port, 9))
        flow = b"\x0a\0\0\1\x0a\0\0\2" + port.to_bytes(2, "big") + b"\0\x09"
        assert (value, place) == (toeplitz(flow), toeplitz(flow) % 4)
        assert hashed == 1 << 2 | 2 << 6
        used.add(place)
    assert used == {0, 1, 2, 3}


def test_all_tirs_of_an_adapter_remember_so_many_flows_together(net: Net) -> None:
    """Any guest can invent flows, and one frame may go to hundreds of TIRs."""
    hashes: Hashes = {}
    keys = (KEY, bytes(reversed(KEY)), bytes(40))
    context = {"hash_function": HashFunction.TOEPLITZ, "hash_udp": 1, "hash_fields": 0xF}
    tirs = [Tir(bytes(TIRC.pack(context, key=key)), None, hashes) for key in keys]
    for number in range(MAX_FLOWS // 3 + 10):
        frame = net.packet(17, number, 9)
        headers = FrameHeaders(frame)
        choices = [tir.choose(frame, headers) for tir in tirs]
        assert len(hashes) <= MAX_FLOWS
    flow = frame[26:38]
    assert [choice and choice.value for choice in choices] == [
        receiving.toeplitz(flow, key) for key in keys
    ]


def test_other_packets_are_hashed_by_addresses_only(net: Net) -> None:
    spread(net)
    found = {net.hashes(net.packet(6, port, 9))[0] for port in range(8)}
    assert found == {(toeplitz(b"\x0a\0\0\1\x0a\0\0\2") % 4, toeplitz(b"\x0a\0\0\1\x0a\0\0\2"), 4)}


def test_both_directions_of_a_flow_have_one_hash(net: Net) -> None:
    spread(net, symmetric=1)
    there = net.hashes(net.packet(17, 100, 200))
    back = net.hashes(net.packet(17, 200, 100, swapped=True))
    assert there == back


def test_a_table_of_queues_changes_under_its_tir(net: Net) -> None:
    """Linux `en/rqt.c: mlx5e_rqt_redirect`, for each `ip link set up`."""
    rqt = net.b.make_rqt([net.rqs[0]])
    net.b.steer(net.b.make_tir(rqt=rqt))
    assert net.arrivals(net.frame(net.b.mac)) == [0]
    modify = bytes(8) + rqt.to_bytes(4, "big") + bytes(4) + (1).to_bytes(8, "big")
    context = bytes(0x18) + pack(">I", 1) + bytes(0xF0 - 0x1C)
    listed = net.rqs[3].number.to_bytes(4, "big")
    net.b.command(Opcode.MODIFY_RQT, modify.ljust(CONTEXT, b"\0") + context + listed)
    assert net.arrivals(net.frame(net.b.mac)) == [3]


def test_own_frames_come_back_where_a_tir_takes_them(net: Net) -> None:
    """Linux `en_selftest.c: mlx5e_test_loopback`."""
    sq = net.b.make_sq()
    net.b.steer(net.tirs[0])
    frame = net.b.mac + net.b.mac + b"\x88\xb5" + bytes(50)
    for allowed in (0, 2, 1):
        data = bytes(8) + net.tirs[0].to_bytes(4, "big") + bytes(4)
        data += int(TirField.LOOPBACK).to_bytes(8, "big")
        context = bytearray(0xF0)
        context[0x24] = allowed
        net.b.command(Opcode.MODIFY_TIR, data.ljust(CONTEXT, b"\0") + bytes(context))
        net.b.post_receive(net.rqs[0])
        net.b.send(sq, frame)
        assert len(net.b.completions(net.rqs[0])) == (allowed == 1)


@pytest.mark.parametrize("group", [False, True])
def test_frames_of_another_transport_domain_come_back_until_loopback_is_off(
    net: Net, group: bool
) -> None:
    """Linux `ib/main.c: mlx5_ib_enable_lb`: two programs of one guest that send frames."""
    address = b"\x01\x50\x56\x19\x20\xa7" if group else net.b.mac
    net.b.steer(net.tirs[0], address)
    net.a.steer(net.a.make_tir(rq := net.a.make_rq()), address)
    net.a.post_receive(rq)
    sq = net.b.make_sq(domain=net.b.make(Opcode.ALLOC_TRANSPORT_DOMAIN))
    same = net.b.make_sq(domain=net.b.domain)
    frame = address + net.b.mac + b"\x88\xb5" + bytes(50)
    field = VportField.MULTICAST_LOOPBACK if group else VportField.UNICAST_LOOPBACK
    for off, sender, copies in ((0, same, 0), (0, sq, 1), (1, sq, 0)):
        context = bytes(NIC_VPORT.pack(no_multicast_loopback=off, no_unicast_loopback=off))
        head = bytes(MODIFY_VPORT.pack(fields=field)).ljust(VPORT_IN, b"\0")
        net.b.command(Opcode.MODIFY_NIC_VPORT_CONTEXT, head + context)
        net.b.post_receive(net.rqs[0])
        net.b.send(sender, frame)
        assert len(net.b.completions(net.rqs[0])) == copies
    assert net.a.completions(rq), "what goes to a group leaves as well, and what does not come back"


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("protocol", [6, 17])
def test_headers_match_though_their_packet_tells_another_length(
    net: Net, version: int, protocol: int
) -> None:
    """rdma-core's `test_flow`: its IPv6 packets count their own header as payload."""
    table = net.b.make_table()
    words = ("tcp_sport", "tcp_dport") if protocol == 6 else ("udp_sport", "udp_dport")
    what = dict(zip(words, (1000, 2000), strict=True))
    mask = dict.fromkeys(words, 0xFFFF)
    group = net.b.make_group(table, 0, 0, ip_version=15, protocol=0xFF, **mask)
    net.set(table, group, 0, net.tir(2), ip_version=version, protocol=protocol, **what)
    net.b.set_root(table)
    if version == 6:
        ip = pack(">IHBB32x", 6 << 28, 200, protocol, 64)
    else:
        ip = pack(">BBHHHBBH8x", 0x45, 0, 200, 0, 0, 64, protocol, 0)
    kind = b"\x86\xdd" if version == 6 else b"\x08\0"
    frame = net.b.mac + net.a.mac + kind + ip + pack(">HH", 1000, 2000)
    assert net.arrivals(frame + bytes(40)) == [2]
    if version == 6:
        assert net.arrivals(frame) == [], "no whole header, no ports"


# -- garbage -------------------------------------------------------------------------------------


def test_tables_in_a_circle_end(net: Net) -> None:
    first, second = net.b.make_table(), net.b.make_table()
    for one, other in ((first, second), (second, first)):
        net.set(one, net.b.make_group(one, 0, 0), 0, net.table(other) * 2)
    net.b.set_root(first)
    assert net.arrivals(net.frame(net.b.mac)) == []


def test_the_work_for_one_frame_counts_destinations_and_counters(net: Net) -> None:
    """A table that leads to itself is gone through less often the more its entry does."""
    table = net.b.make_table()
    counters = [net.b.make(Opcode.ALLOC_FLOW_COUNTER) for _ in range(250)]
    action = Action.FORWARD | Action.COUNT
    group = net.b.make_group(table, 0, 0)
    net.set(table, group, 0, net.table(table), counters, action=action)
    net.b.set_root(table)
    net.arrivals(net.frame(net.b.mac))
    query = bytes(steering.QUERY_FLOW_COUNTER.pack(counter=counters[0]))
    answer = net.b.command(Opcode.QUERY_FLOW_COUNTER, query)
    assert 1 <= int.from_bytes(answer[0x10:0x18], "big") <= 5


def test_a_frame_is_copied_256_times_at_most(net: Net) -> None:
    last, first = net.b.make_table(), net.b.make_table()
    for table, more in ((last, []), (first, net.table(last))):
        net.set(table, net.b.make_group(table, 0, 0), 0, net.tir(0) * 200 + more)
    net.b.set_root(first)
    message = Frames(net.b.mac, [Train([net.frame(net.b.mac)])])
    assert net.b.adapter.objects.port.receive(message) == 256


def test_destinations_and_counters_of_all_entries_are_limited(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_WAYS", 4)
    table = net.b.make_table()
    group = net.b.make_group(table, 0, 9)
    counter = net.b.make(Opcode.ALLOC_FLOW_COUNTER)
    second = net.b.entry(table, group, 1, net.tir(0) * 2, [counter])
    for _ in range(3):  # what is deleted or destroyed does not count
        net.set(table, group, 0, net.tir(0) * 2)
        assert net.b.status(Opcode.SET_FLOW_TABLE_ENTRY, second) == Status.LIM_ERR
        net.b.command(Opcode.DELETE_FLOW_TABLE_ENTRY, bytes(steering.FLOW_TABLE.pack(table=table)))
    assert net.b.status(Opcode.SET_FLOW_TABLE_ENTRY, second) == Status.OK
    net.b.command(Opcode.DESTROY_FLOW_TABLE, bytes(steering.FLOW_TABLE.pack(table=table)))
    table = net.b.make_table()
    net.set(table, net.b.make_group(table, 0, 9), 0, net.tir(0) * 4)


@pytest.mark.parametrize(
    ("what", "status"),
    [
        ({"index": 9}, Status.BAD_PARAM),
        ({"group": 77}, Status.BAD_RES),
        ({"table": 77}, Status.BAD_RES),
        ({"destinations": [(Destination.VPORT, 0)]}, Status.BAD_PARAM),
        ({"destinations": [(Destination.FLOW_TABLE, 99)]}, Status.BAD_RES),
        ({"counters": [5]}, Status.BAD_RES),
        ({"action": 1 << 9}, Status.BAD_PARAM),
        ({"destinations": [(Destination.TIR, 1)] * 300}, Status.LIM_ERR),
    ],
)
def test_entries_that_make_no_sense_are_refused(
    net: Net, what: dict[str, object], status: Status
) -> None:
    table = net.b.make_table()
    group = net.b.make_group(table, 0, 3)
    values: dict[str, object] = {"table": table, "group": group, "index": 0, **what}
    data = net.b.entry(**values)  # type: ignore[arg-type]
    assert net.b.status(Opcode.SET_FLOW_TABLE_ENTRY, data) == status
    assert net.b.adapter.objects.flows.table(table, 0).entries == {}


def test_groups_do_not_overlap_and_look_at_outer_headers(net: Net) -> None:
    table = net.b.make_table(log_size=3)
    net.b.make_group(table, 2, 4)
    for first, last in ((0, 2), (4, 4), (3, 7), (5, 8), (6, 5)):
        data = bytes(steering.CREATE_FLOW_GROUP.pack(table=table, first=first, last=last))
        assert net.b.status(Opcode.CREATE_FLOW_GROUP, data) == Status.BAD_PARAM, (first, last)
    misc = bytes(0x40) + b"\1" + bytes(steering.MATCH_BYTES - 0x41)
    data = bytes(steering.CREATE_FLOW_GROUP.pack(table=table, criteria=2, mask=misc))
    assert net.b.status(Opcode.CREATE_FLOW_GROUP, data) == Status.BAD_PARAM


def test_a_group_with_entries_stays(net: Net) -> None:
    table = net.b.make_table()
    group = net.b.make_group(table, 0, 3)
    net.set(table, group, 0, net.tir(0))
    data = bytes(steering.FLOW_TABLE.pack(table=table, group=group))
    assert net.b.status(Opcode.DESTROY_FLOW_GROUP, data) == Status.BAD_RES_STATE
    net.b.command(Opcode.DELETE_FLOW_TABLE_ENTRY, bytes(steering.FLOW_TABLE.pack(table=table)))
    assert net.b.status(Opcode.DESTROY_FLOW_GROUP, data) == Status.OK


def test_objects_that_are_gone_lose_their_frames(net: Net) -> None:
    table = net.b.steer(net.tirs[0])
    net.b.command(Opcode.DESTROY_TIR, number=net.tirs[0])
    assert net.arrivals(net.frame(net.b.mac)) == []
    net.b.command(Opcode.DESTROY_FLOW_TABLE, bytes(steering.FLOW_TABLE.pack(table=table)))
    assert net.arrivals(net.frame(net.b.mac)) == []


def test_short_frames_and_odd_headers_reach_no_wrong_entry(net: Net) -> None:
    """A header that ends before its fields has none of them."""
    table = net.b.make_table()
    group = net.b.make_group(table, 0, 3, udp_dport=0xFFFF)
    net.set(table, group, 0, net.tir(0), udp_dport=2)
    net.b.set_root(table)
    whole = net.packet(17)
    assert net.arrivals(whole) == [0]
    fragment = bytearray(whole)
    fragment[20:22] = b"\0\1"
    assert net.arrivals(bytes(fragment)) == []
    fragments = net.b.make_table()
    group = net.b.make_group(fragments, 0, 0, fragment=1)
    net.set(fragments, group, 0, net.tir(1), fragment=1)
    net.b.set_root(fragments)
    assert (net.arrivals(whole), net.arrivals(bytes(fragment))) == ([], [1])
    net.b.set_root(table)
    short = bytearray(whole)
    short[16:18] = (24).to_bytes(2, "big")
    assert net.arrivals(bytes(short)) == []
