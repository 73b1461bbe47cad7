"""Keys of a ConnectX-5 beside those over pages: the one that needs no command, windows, parts."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import MKC, AccessMode
from bluebridge.device.layout.mlx5.cqe import CQE, ERROR_CQE, CqeOpcode, Syndrome
from bluebridge.device.layout.mlx5.objects import CREATE_MKEY, ENTRY, LIST, SPECIAL_CONTEXTS
from bluebridge.device.layout.mlx5.wqe import (
    KLM,
    REPEAT,
    REPEAT_BLOCK,
    STRIDED,
    UMR,
    KeyMask,
    SendOpcode,
    UmrFlag,
)
from bluebridge.device.mlx5.objects.keys import PARTS
from tests.models.mlx5_pair import Pair, RoceNode, opcodes, remote

ANY_PAIR = 0xFFFFFF
BIND = int(
    KeyMask.FREE | KeyMask.KEY | KeyMask.LENGTH | KeyMask.START | KeyMask.LOCAL_WRITE
    | KeyMask.REMOTE_READ | KeyMask.REMOTE_WRITE | KeyMask.ATOMIC
)  # fmt: skip
START = 0x7000_0000
PAGE = 4096


@pytest.fixture
def nodes() -> tuple[RoceNode, RoceNode]:
    fabric = LocalFabric()
    return RoceNode(1, fabric), RoceNode(2, fabric)


def connect(a: Pair, b: Pair) -> None:
    a.connect(b)
    b.connect(a)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_reserved_key_is_all_of_memory_for_pairs_that_may_use_it(
    nodes: tuple[RoceNode, RoceNode], *, allowed: bool
) -> None:
    first, second = nodes
    answer = first.command(Opcode.QUERY_SPECIAL_CONTEXTS)
    key = SPECIAL_CONTEXTS.get(answer, "reserved_lkey")
    a, b = first.make_pair(reserved_lkey=int(allowed)), second.make_pair()
    connect(a, b)
    buffer = b.receive()
    a.post(SendOpcode.SEND, a.data(b"from anywhere", key))
    (sent,) = a.sent()
    if allowed:
        assert second.host.peek(buffer, 13) == b"from anywhere"
    else:
        assert ERROR_CQE.get(sent, "syndrome") == Syndrome.LOCAL_PROT_ERR


def test_a_peer_reaches_nothing_by_the_reserved_key(nodes: tuple[RoceNode, RoceNode]) -> None:
    first, second = nodes
    key = SPECIAL_CONTEXTS.get(second.command(Opcode.QUERY_SPECIAL_CONTEXTS), "reserved_lkey")
    a, b = first.make_pair(), second.make_pair(reserved_lkey=1)
    connect(a, b)
    place = second.memory(b"untouched")
    a.post(SendOpcode.RDMA_WRITE, remote(place, key) + a.data(b"forbidden"))
    (sent,) = a.sent()
    assert ERROR_CQE.get(sent, "syndrome") == Syndrome.REMOTE_ACCESS_ERR
    assert second.host.peek(place, 9) == b"untouched"


# -- windows: the entries are those of rdma-core (providers/mlx5/qp.c: set_bind_wr) ---------------


@pytest.fixture
def pairs(nodes: tuple[RoceNode, RoceNode]) -> tuple[Pair, Pair]:
    """Two queue pairs of programs."""
    a, b = nodes[0].make_pair(log_sq_size=4), nodes[1].make_pair(log_sq_size=4)
    connect(a, b)
    return a, b


def make_window(node: RoceNode, *, second: bool = False, room: int = 4) -> int:
    """A memory window, as the kernel makes it."""
    return node.make_key(
        (), access_mode=AccessMode.KLMS, length64=0, free=1, umr=1, local_write=0,
        may_invalidate=int(second), translations=room,
    )  # fmt: skip


def make_region(node: RoceNode, **more: int) -> tuple[int, list[int]]:
    """A region of two pages that is open to its owner only."""
    pages = [node.host.allocate(PAGE) for _ in range(2)]
    return node.make_key(tuple(pages), start=START, **more), pages


def update(
    pair: Pair, key: int, mask: int, parts: list[tuple[int, int, int]], flags: int, **values: Value
) -> None:
    """Post a change of a key that consists of parts: lengths, keys and addresses."""
    listed = b"".join(pack(">IIQ", *part) for part in parts)
    listed = listed.ljust(-(-len(listed) // 64) * 64, b"\0")
    control = UMR.pack(
        flags=flags | UmrFlag.OFFSET | UmrFlag.INLINE, octowords=len(listed) // KLM.size, mask=mask
    )
    context = MKC.pack({"key": key & 0xFF, "qpn": ANY_PAIR, **values})
    pair.post(SendOpcode.UMR, bytes(control) + bytes(context) + listed, last=key & ~0xFF)


def bind(
    pair: Pair, key: int, region: int, at: int, length: int, *, second: bool = False, **rights: int
) -> None:
    """Post a bind request."""
    mask, flags = BIND, 0
    values: dict[str, Value] = {"start": at, "length": length, **rights}
    if second:
        mask |= KeyMask.QPN
        flags = UmrFlag.MUST_BE_FREE
        values["qpn"] = pair.number
    update(pair, key, mask, [(length, region, at)], flags, **values)


def unbind(pair: Pair, key: int, *, second: bool = False) -> None:
    """Post a bind request of no length, or LOCAL_INV of a window of type 2."""
    mask = KeyMask.FREE | KeyMask.KEY | (KeyMask.QPN if second else 0)
    update(pair, key, mask, [], UmrFlag.SAME_PAIR if second else 0, free=1)


def write(pair: Pair, key: int, at: int, content: bytes) -> str:
    """Write to the peer, and return how that ended."""
    pair.sent()
    pair.post(SendOpcode.RDMA_WRITE, remote(at, key) + pair.data(content))
    (done,) = pair.sent()
    if CQE.get(done, "opcode") == CqeOpcode.REQUEST:
        return "OK"
    return Syndrome(ERROR_CQE.get(done, "syndrome")).name


@pytest.mark.parametrize("second", [False, True])
def test_a_window_opens_a_part_of_a_region_until_it_is_unbound(
    pairs: tuple[Pair, Pair], *, second: bool
) -> None:
    a, b = pairs
    region, pages = make_region(b.node)
    key = make_window(b.node, second=second) + 1
    bind(b, key, region, START + 100, PAGE, second=second, remote_write=1)
    assert opcodes(b.sent()) == [CqeOpcode.REQUEST]
    assert write(a, key, START + PAGE - 2, b"over") == "OK"
    assert b.node.host.peek(pages[0] + PAGE - 2, 2) + b.node.host.peek(pages[1], 2) == b"over"
    unbind(b, key, second=second)
    assert opcodes(b.sent()) == [CqeOpcode.REQUEST]
    assert write(a, key, START + 100, b"late") == "REMOTE_ACCESS_ERR"


@pytest.mark.parametrize("fault", ["before", "behind", "read only", "region", "old key", "domain"])
def test_a_window_opens_nothing_else(pairs: tuple[Pair, Pair], fault: str) -> None:
    a, b = pairs
    more = {"region": {"local_write": 0}, "domain": {"pd": b.node.pd + 1}}.get(fault, {})
    region, _ = make_region(b.node, **more)
    key, place = make_window(b.node) + 1, START + 100
    read_only = fault == "read only"
    bind(b, key, region, place, 200, remote_read=read_only, remote_write=not read_only)
    place += {"before": -1, "behind": 199}.get(fault, 0)
    assert write(a, key - (fault == "old key"), place, b"no") == "REMOTE_ACCESS_ERR"


def test_a_window_of_type_1_is_bound_again_at_another_place(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    region, pages = make_region(b.node)
    key = make_window(b.node)
    for place in (0, PAGE):
        key = key & ~0xFF | key + 1 & 0xFF
        bind(b, key, region, START + place, 64, remote_write=1)
        assert write(a, key, START + place, b"here") == "OK"
    assert b.node.host.peek(pages[1], 4) == b"here"
    assert opcodes(b.sent()) == [CqeOpcode.REQUEST] * 2


def test_a_window_of_type_2_is_for_the_peer_of_its_pair(
    nodes: tuple[RoceNode, RoceNode], pairs: tuple[Pair, Pair]
) -> None:
    _, b = pairs
    stranger, other = nodes[0].make_pair(), nodes[1].make_pair(log_sq_size=4)
    connect(stranger, other)
    region, _ = make_region(b.node)
    key = make_window(b.node, second=True)
    bind(b, key, region, START, 64, second=True, remote_write=1)
    assert write(stranger, key, START, b"no") == "REMOTE_ACCESS_ERR"
    other = nodes[1].make_pair(log_sq_size=4)
    other.connect(stranger)
    unbind(other, key, second=True)
    assert ERROR_CQE.get(other.sent()[0], "syndrome") == Syndrome.MW_BIND_ERR
    bind(b, key, region, START, 64, second=True, remote_write=1)  # twice
    assert ERROR_CQE.get(b.sent()[-1], "syndrome") == Syndrome.MW_BIND_ERR


def test_a_peer_invalidates_a_window_of_type_2(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    region, _ = make_region(b.node)
    key = make_window(b.node, second=True)
    bind(b, key, region, START, 64, second=True, remote_write=1)
    b.receive()
    a.post(SendOpcode.SEND_INVAL, a.data(b"done"), last=key)
    assert opcodes(b.received()) == [CqeOpcode.RESPONSE_SEND_INV]
    assert write(a, key, START, b"late") == "REMOTE_ACCESS_ERR"


@pytest.mark.parametrize("gone", ["window", "region", "pair"])
def test_nothing_is_reached_by_a_window_when_it_or_what_is_behind_it_is_gone(
    nodes: tuple[RoceNode, RoceNode], pairs: tuple[Pair, Pair], gone: str
) -> None:
    a, b = pairs
    region, _ = make_region(b.node)
    key = make_window(b.node, second=gone == "pair")
    bind(b, key, region, START, 64, second=gone == "pair", remote_write=1)
    if gone == "pair":
        b.node.command(Opcode.TORST_QP, number=b.number)
        assert b.node.command(Opcode.DESTROY_QP, number=b.number)
        a, b = nodes[0].make_pair(), nodes[1].make_pair()
        connect(a, b)
    else:
        number = (key if gone == "window" else region) >> 8
        assert b.node.status(Opcode.DESTROY_MKEY, number=number) is Status.OK
    assert write(a, key, START, b"late") == "REMOTE_ACCESS_ERR"


@pytest.mark.parametrize("fault", ["pages", "domain", "longer", "too many"])
def test_programs_bind_only_what_is_theirs(pairs: tuple[Pair, Pair], fault: str) -> None:
    """The kernel says where memory is, and a list is as long as it says."""
    _, b = pairs
    region, pages = make_region(b.node)
    key, length, mask, parts = make_window(b.node), 64, BIND, [(64, region, START)]
    if fault == "pages":
        key = b.node.make_key(pages, umr=1)
    elif fault == "domain":
        mask |= KeyMask.PD
    elif fault == "longer":
        length = 65
    else:
        parts *= 5
    update(b, key, mask, parts, 0, start=START, length=length, remote_write=1)
    assert ERROR_CQE.get(b.sent()[0], "syndrome") == Syndrome.MW_BIND_ERR


def test_a_registration_with_gaps_is_a_list_of_parts(nodes: tuple[RoceNode, RoceNode]) -> None:
    """The kernel's parts are in its key to all of memory, of any length."""
    a = nodes[0].make_pair()
    b = nodes[1].make_pair(fast_register=1, log_sq_size=4)
    connect(a, b)
    places = [b.node.memory(100) for _ in range(3)]
    key = make_window(b.node, second=True)
    parts = [
        (33, b.node.key, places[2]),
        (9, b.node.key, places[0] + 1),
        (20, b.node.key, places[1]),
    ]
    mask = BIND | KeyMask.PAGE_SIZE | KeyMask.LOCAL_READ | KeyMask.MAY_INVALIDATE
    update(
        b, key, mask, parts, UmrFlag.MUST_BE_FREE, start=START, length=62, local_read=1,
        local_write=1, remote_write=1, remote_read=1, may_invalidate=1, log_page_size=12,
    )  # fmt: skip
    content = bytes(range(62))
    assert write(a, key, START, content) == "OK"
    peek = b.node.host.peek
    assert peek(places[2], 33) + peek(places[0] + 1, 9) + peek(places[1], 20) == content
    unbind(b, key)
    assert opcodes(b.sent()) == [CqeOpcode.REQUEST] * 2
    assert write(a, key, START, b"late") == "REMOTE_ACCESS_ERR"


# -- interleaved keys: rdma-core's (providers/mlx5/qp.c: umr_strided_seg_create) ------------------

SPREAD = int(KeyMask.FREE | KeyMask.LENGTH | KeyMask.START | KeyMask.REMOTE_WRITE)


def repeating(blocks: list[tuple[int, int, int, int]], **head: int) -> bytes:
    """A list whose entries repeat: strides, lengths, keys and addresses."""
    what = {
        "operation": REPEAT_BLOCK, "repeats": 3, "entries": len(blocks),
        "byte_count": sum(block[1] for block in blocks), **head,
    }  # fmt: skip
    names = ("stride", "byte_count", "key", "address")
    packed = [bytes(STRIDED.pack(dict(zip(names, block, strict=True)))) for block in blocks]
    listed = bytes(REPEAT.pack(what)) + b"".join(packed)
    return listed.ljust(-(-len(listed) // 64) * 64, b"\0")


def spread(pair: Pair, key: int, listed: bytes, length: int, *, inline: bool = True) -> str:
    """Post a change that gives a key this list, and return how that ended."""
    pair.sent()
    flags = UmrFlag.INLINE if inline else 0
    control = UMR.pack(flags=flags, octowords=len(listed) // KLM.size, mask=SPREAD)
    values = {"start": START, "length": length, "remote_write": 1, "qpn": ANY_PAIR}
    if not inline:
        listed = pair.data(listed)
    pair.post(SendOpcode.UMR, bytes(control) + bytes(MKC.pack(values)) + listed, last=key & ~0xFF)
    (done,) = pair.sent()
    if CQE.get(done, "opcode") == CqeOpcode.REQUEST:
        return "OK"
    return Syndrome(ERROR_CQE.get(done, "syndrome")).name


@pytest.mark.parametrize("inline", [True, False])
def test_an_interleaved_key_spreads_what_is_written_over_blocks(
    pairs: tuple[Pair, Pair], *, inline: bool
) -> None:
    a, b = pairs
    region, pages = make_region(b.node)
    key = make_window(b.node)
    listed = repeating([(10, 8, region, START), (10, 8, region, START + 64)])
    assert spread(b, key, listed, 48, inline=inline) == "OK"
    content = bytes(range(1, 49))
    assert write(a, key, START, content) == "OK"
    first = content[:8] + b"\0\0" + content[16:24] + b"\0\0" + content[32:40]
    second = content[8:16] + b"\0\0" + content[24:32] + b"\0\0" + content[40:48]
    assert b.node.host.peek(pages[0], 92) == first.ljust(64, b"\0") + second
    answer = b.node.command(Opcode.QUERY_MKEY, number=key >> 8)
    assert answer[LIST:] == listed[:48]
    assert spread(b, key, repeating([(0, 4, region, START)]), 12, inline=inline) == "OK"  # twice
    assert write(a, key, START, b"onto") == "OK"
    assert write(a, key, START, b"it, last one") == "OK"
    assert b.node.host.peek(pages[0], 8) == b" one" + content[4:8]
    assert write(a, key, START + 9, b"behind") == "REMOTE_ACCESS_ERR"


@pytest.mark.parametrize("gone", ["free", "key", "region"])
def test_nothing_is_reached_by_an_interleaved_key_that_is_gone(
    pairs: tuple[Pair, Pair], gone: str
) -> None:
    a, b = pairs
    region, _ = make_region(b.node)
    key = make_window(b.node)
    assert spread(b, key, repeating([(10, 8, region, START)]), 24) == "OK"
    if gone == "free":
        unbind(b, key)
    else:
        number = (key if gone == "key" else region) >> 8
        assert b.node.status(Opcode.DESTROY_MKEY, number=number) is Status.OK
    assert write(a, key, START, b"late") == "REMOTE_ACCESS_ERR"


@pytest.mark.parametrize(
    ("head", "size", "length"),
    [
        ({"entries": 0, "byte_count": 0}, 8, 0),
        ({"entries": 0xFFFF}, 8, 8),
        ({"entries": 4}, 8, 8),
        ({"repeats": 0}, 8, 0),
        ({"byte_count": 9}, 8, 24),
        ({}, 0, 0),
        ({}, 8, 25),
        ({"repeats": 0xFFFF_FFFF}, 8, (1 << 64) - 1),
    ],
)
def test_a_list_that_repeats_and_contradicts_itself_is_refused(
    pairs: tuple[Pair, Pair], head: dict[str, int], size: int, length: int
) -> None:
    _, b = pairs
    region, _ = make_region(b.node)
    key = make_window(b.node)
    listed = repeating([(10, size, region, START)], **head)
    assert spread(b, key, listed, length) == "MW_BIND_ERR"
    changed = b.node.adapter.objects.keys.regions.get(key >> 8)
    assert changed is not None and changed.free and not changed.pieces


def test_blocks_beyond_the_region_behind_them_are_not_reached(pairs: tuple[Pair, Pair]) -> None:
    """Also where their addresses are beyond 64 bits."""
    a, b = pairs
    region, _ = make_region(b.node)
    key = make_window(b.node)
    listed = repeating([(0xFFFF, 8, region, START)], repeats=0xFFFF_FFFF)
    assert spread(b, key, listed, 8 * 0xFFFF_FFFF) == "OK"
    assert write(a, key, START, b"the first") == "REMOTE_ACCESS_ERR"


# -- lists of parts with the command: UCX's (ib_mlx5dv_md.c: uct_ib_mlx5_devx_reg_ksm) ------------

GIB2 = 1 << 31


def parts_input(
    node: RoceNode, mode: AccessMode, parts: list[tuple[int, int, int]], **values: Value
) -> bytes:
    """The input of CREATE_MKEY for a key of parts: lengths, keys and addresses."""
    what: dict[str, Value] = {
        "access_mode": mode, "pd": node.pd, "key": 0x5A, "qpn": ANY_PAIR, "start": START,
        "local_read": 1, "local_write": 1, "remote_read": 1, "remote_write": 1,
        "translations": len(parts), "log_page_size": 31, **values,
    }  # fmt: skip
    data = CREATE_MKEY.pack(translations=len(parts))
    data[ENTRY : ENTRY + MKC.size] = MKC.pack(what)
    return bytes(data) + b"".join(pack(">IIQ", *part) for part in parts)


def make_parts(
    node: RoceNode, mode: AccessMode, parts: list[tuple[int, int, int]], **values: Value
) -> int:
    return node.make(Opcode.CREATE_MKEY, parts_input(node, mode, parts, **values)) << 8 | 0x5A


def test_a_key_with_an_offset_reaches_the_key_behind_it(pairs: tuple[Pair, Pair]) -> None:
    """UCX makes one for atomics: its parts are 2 GiB, though the key behind it has two pages."""
    a, b = pairs
    region, pages = make_region(b.node)
    aligned = START // GIB2 * GIB2
    key = make_parts(
        b.node, AccessMode.KSM, [(0, region, aligned)], start=aligned + 8,
        length=START - aligned + 2 * PAGE,
    )  # fmt: skip
    assert write(a, key, START + 8 + PAGE - 2, b"over") == "OK"
    assert b.node.host.peek(pages[0] + PAGE - 2, 2) + b.node.host.peek(pages[1], 2) == b"over"
    assert write(a, key, START + 7, b"before") == "REMOTE_ACCESS_ERR"


@pytest.mark.parametrize("mode", [AccessMode.KLMS, AccessMode.KSM])
def test_a_key_of_parts_goes_over_from_one_to_the_next(
    pairs: tuple[Pair, Pair], mode: AccessMode
) -> None:
    a, b = pairs
    keys = [make_region(b.node) for _ in range(2)]
    size = 33 if mode is AccessMode.KLMS else 0  # those of KSM have that of the key
    parts = [(size, key, START + 7) for key, _ in keys]
    length = 2 * (size or PAGE)
    key = make_parts(b.node, mode, parts, length=length, log_page_size=12)
    assert write(a, key, START + length // 2 - 2, b"over") == "OK"
    (first, after), (second, _) = (pages for _, pages in keys)
    end = first + 7 + 33 if size else after + 7
    assert b.node.host.peek(end - 2, 2) + b.node.host.peek(second + 7, 2) == b"over"
    assert write(a, key, START + length - 2, b"out") == "REMOTE_ACCESS_ERR"


def test_a_key_of_parts_opens_no_other_domain_and_nothing_that_is_gone(
    nodes: tuple[RoceNode, RoceNode], pairs: tuple[Pair, Pair]
) -> None:
    a, b = pairs
    foreign, _ = make_region(b.node, pd=b.node.pd + 1)
    key = make_parts(b.node, AccessMode.KSM, [(0, foreign, START)], length=PAGE)
    assert write(a, key, START, b"no") == "REMOTE_ACCESS_ERR"
    a, b = nodes[0].make_pair(), nodes[1].make_pair()
    connect(a, b)
    region, _ = make_region(b.node)
    key = make_parts(b.node, AccessMode.KSM, [(0, region, START)], length=PAGE)
    assert write(a, key, START, b"yes") == "OK"
    assert b.node.status(Opcode.DESTROY_MKEY, number=region >> 8) is Status.OK
    assert write(a, key, START, b"late") == "REMOTE_ACCESS_ERR"


@pytest.mark.parametrize("fault", ["longer", "short", "size", "mode"])
def test_a_list_of_parts_that_is_not_as_it_says_is_refused(
    nodes: tuple[RoceNode, RoceNode], fault: str
) -> None:
    node, _ = nodes
    region, _ = make_region(node)
    before = len(node.adapter.objects.keys)
    mode, more = AccessMode.KSM, {"length": PAGE, "log_page_size": 12}
    if fault == "longer":
        more["length"] += 1
    elif fault == "size":
        more["log_page_size"] = 3
    data = parts_input(node, mode, [(0, region, START)], **more)
    if fault == "short":
        data = data[:-8]
    elif fault == "mode":
        altered = bytearray(data)
        MKC.set(altered, "access_mode_high", 1, ENTRY)
        data = bytes(altered)
    assert node.status(Opcode.CREATE_MKEY, data) is Status.BAD_PARAM
    assert len(node.adapter.objects.keys) == before


def test_a_long_list_of_parts_is_read_in_portions(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    region, pages = make_region(b.node)
    count = 3 * PARTS + 1
    parts = [(2, region, START + number % 7 * 2) for number in range(count)]
    key = make_parts(b.node, AccessMode.KLMS, parts, length=2 * count)
    assert write(a, key, START + 2 * count - 4, b"last") == "OK"
    before, last = (b.node.host.peek(pages[0] + place - START, 2) for _, _, place in parts[-2:])
    assert before + last == b"last"
