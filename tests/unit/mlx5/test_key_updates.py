"""Memory keys that work requests register, change and invalidate (UMR)."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.armed_faults import ArmedFault
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.faults import Effect
from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import MKC, AccessMode
from bluebridge.device.layout.mlx5.cqe import CQE, ERROR_CQE, CqeOpcode, Syndrome
from bluebridge.device.layout.mlx5.init_segment import SEND_DOORBELL
from bluebridge.device.layout.mlx5.objects import CREATE_MKEY, ENTRY, LIST
from bluebridge.device.layout.mlx5.queue_pairs import QpState
from bluebridge.device.layout.mlx5.wqe import UMR, KeyMask, SendOpcode, UmrFlag
from bluebridge.device.mlx5.objects.keys import PORTION
from bluebridge.device.server.mlx5_faults import ConnectX5Faults
from tests.models.mlx5_keys import (
    ACCESS,
    ENABLE,
    FREE,
    PAGE,
    START,
    change,
    empty_key,
    listed,
    register,
    updater_of,
)
from tests.models.mlx5_pair import Pair, RoceNode, opcodes, remote


@pytest.fixture
def pairs() -> tuple[Pair, Pair]:
    """Two queue pairs of kernels, which may register memory."""
    fabric = LocalFabric()
    a, b = (RoceNode(n, fabric).make_pair(fast_register=1, log_sq_size=4) for n in (1, 2))
    a.connect(b)
    b.connect(a)
    return a, b


def test_the_list_of_a_short_key_is_filled_up(pairs: tuple[Pair, Pair]) -> None:
    """A list has blocks of 64 bytes, also for a key with room for two pages."""
    a, b = pairs
    key, page = empty_key(b.node, 2), b.node.host.allocate(PAGE)
    register(b, key, [page], apart=True)
    a.post(SendOpcode.RDMA_WRITE, remote(START, key) + a.data(b"short"))
    assert b.node.host.peek(page, 5) == b"short"


@pytest.mark.parametrize("apart", [False, True])
def test_a_registration_opens_memory_and_an_invalidation_closes_it(
    pairs: tuple[Pair, Pair], apart: bool
) -> None:
    a, b = pairs
    pages = [b.node.host.allocate(PAGE) for _ in range(3)]
    key = empty_key(b.node) & ~0xFF | 0x11
    register(b, key, pages[::-1], apart=apart)
    (done,) = b.sent()
    assert (CQE.get(done, "opcode"), CQE.get(done, "wqe_opcode")) == (0, SendOpcode.UMR)
    content = bytes(range(256)) * 20
    a.post(SendOpcode.RDMA_WRITE, remote(START + 100, key) + a.data(content))
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    stored = b"".join(b.node.host.peek(page, PAGE) for page in pages[::-1])
    assert stored[100 : 100 + len(content)] == content
    change(b, key, KeyMask.FREE, values=FREE)
    assert opcodes(b.sent()) == [CqeOpcode.REQUEST]
    a.post(SendOpcode.RDMA_WRITE, remote(START, key) + a.data(b"late"))
    (failed,) = a.sent()
    assert ERROR_CQE.get(failed, "syndrome") == Syndrome.REMOTE_ACCESS_ERR


def test_a_key_is_registered_anew_once_it_was_invalidated(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    key = empty_key(b.node)
    pages = [b.node.host.allocate(PAGE) for _ in range(2)]
    for low, page in enumerate(pages):
        key = key & ~0xFF | low
        register(b, key, [page])
        a.post(SendOpcode.RDMA_WRITE, remote(START, key) + a.data(b"%d" % low))
        assert b.node.host.peek(page, 1) == b"%d" % low
        change(b, key, KeyMask.FREE, values=FREE)
    register(b, key, [pages[0]])
    register(b, key, [pages[0]])  # twice
    assert ERROR_CQE.get(b.sent()[-1], "syndrome") == Syndrome.MW_BIND_ERR
    assert b.state is QpState.ERR


def test_a_peer_invalidates_a_key_that_permits_it(pairs: tuple[Pair, Pair]) -> None:
    a, b = pairs
    key = empty_key(b.node)
    register(b, key, [b.node.host.allocate(PAGE)])
    b.receive()
    a.post(SendOpcode.SEND_INVAL, a.data(b"done"), last=key)
    (came,) = b.received()
    assert CQE.get(came, "opcode") == CqeOpcode.RESPONSE_SEND_INV
    assert CQE.get(came, "immediate") == key
    a.sent()
    a.post(SendOpcode.RDMA_WRITE, remote(START, key) + a.data(b"late"))
    assert ERROR_CQE.get(a.sent()[0], "syndrome") == Syndrome.REMOTE_ACCESS_ERR


def test_a_list_comes_in_parts_from_a_queue_pair_of_umr(pairs: tuple[Pair, Pair]) -> None:
    """The kernel registers memory of user space so: the last part names the fields."""
    a, b = pairs
    updater, key = updater_of(b.node), empty_key(b.node, 24)
    pages = [b.node.host.allocate(PAGE) for _ in range(20)]
    change(updater, key, 0, pages[:8], flags=UmrFlag.MUST_BE_FREE, apart=True)
    change(updater, key, 0, pages[8:16], flags=UmrFlag.MUST_BE_FREE, apart=True, offset=4)
    values: dict[str, Value] = {**ACCESS, "start": START, "length": PAGE * 20, "pd": b.node.pd}
    mask = ENABLE | KeyMask.PD
    change(
        updater,
        key,
        mask,
        pages[16:],
        flags=UmrFlag.MUST_BE_FREE,
        apart=True,
        offset=8,
        values=values,
    )
    assert opcodes(updater.sent()) == [CqeOpcode.REQUEST] * 3
    a.post(SendOpcode.RDMA_WRITE, remote(START + 19 * PAGE - 2, key) + a.data(b"over"))
    assert b.node.host.peek(pages[18] + PAGE - 2, 2) + b.node.host.peek(pages[19], 2) == b"over"
    change(updater, key, KeyMask.FREE | KeyMask.PD, values={**FREE, "pd": b.node.pd + 1})  # revoked
    a.sent()
    a.post(SendOpcode.RDMA_WRITE, remote(START, key) + a.data(b"late"))
    assert ERROR_CQE.get(a.sent()[0], "syndrome") == Syndrome.REMOTE_ACCESS_ERR


def test_a_key_is_revoked_whose_list_never_ended(pairs: tuple[Pair, Pair]) -> None:
    """The kernel revokes what it could not register in the middle (ib/mr.c: mlx5_ib_dereg_mr)."""
    _, b = pairs
    updater, key = updater_of(b.node), empty_key(b.node, 24)
    page = b.node.host.allocate(PAGE)
    change(updater, key, 0, [page] * 8, apart=True)
    change(updater, key, KeyMask.FREE, values=FREE)
    register(updater, key, [page])
    assert opcodes(updater.sent()) == [CqeOpcode.REQUEST] * 3


def test_a_key_whose_command_is_forgotten_takes_no_number(pairs: tuple[Pair, Pair]) -> None:
    """Software may give another command queue between two portions of a long list."""
    node = pairs[0].node
    page, count = node.host.allocate(PAGE), PORTION + 1
    before = node.make_key((page,))
    context = MKC.pack(access_mode=1, pd=node.pd, log_page_size=12, length=PAGE * count)
    data = bytearray(LIST + 8 * count)
    data[ENTRY : ENTRY + MKC.size] = context
    CREATE_MKEY.set(data, "translations", count)
    forgotten = node.adapter.objects.keys.create(bytes(data))
    next(forgotten)
    forgotten.close()
    assert node.make_key((page,)) == before + 0x100


def test_a_region_of_no_length_permits_nothing(pairs: tuple[Pair, Pair]) -> None:
    """A program may register no bytes in the middle of a page: the list has that page."""
    a, b = pairs
    updater, key, page = updater_of(b.node), empty_key(b.node), b.node.host.allocate(PAGE)
    values: dict[str, Value] = {**ACCESS, "start": START + 8, "length": 0, "length64": 1}
    change(updater, key, ENABLE, [page], flags=UmrFlag.MUST_BE_FREE, apart=True, values=values)
    change(updater, key, KeyMask.LOCAL_WRITE, flags=UmrFlag.MUST_NOT_BE_FREE, values=ACCESS)
    assert opcodes(updater.sent()) == [CqeOpcode.REQUEST] * 2
    a.post(SendOpcode.RDMA_WRITE, remote(START + 8, key) + a.data(b"1"))
    assert ERROR_CQE.get(a.sent()[0], "syndrome") == Syndrome.REMOTE_ACCESS_ERR


def test_a_locked_key_that_was_invalidated_stays_so(pairs: tuple[Pair, Pair]) -> None:
    _, b = pairs
    key, page = empty_key(b.node), b.node.host.allocate(PAGE)
    register(b, key, [page])
    faults = ConnectX5Faults(b.node.hca)
    fault = ArmedFault(1, "key-locked", Effect.KEY_LOCKED, key)
    faults.begin(fault, {})
    change(b, key, KeyMask.FREE, values=FREE)
    fault.undo()
    register(b, key, [page])
    assert opcodes(b.sent()) == [CqeOpcode.REQUEST] * 3


@pytest.mark.parametrize("fault", ["one key", "all keys", "domain", "no key of work requests"])
def test_a_list_that_never_ends_has_a_limit(
    pairs: tuple[Pair, Pair], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = pairs
    updater, node = updater_of(b.node), b.node
    page, most = node.host.allocate(PAGE), 1 << 16
    key = empty_key(node, 1 << 30)
    if fault == "one key":
        monkeypatch.setattr(node.adapter.objects.keys.regions, "most_pages", most)
        change(updater, key, 0, [page] * most, apart=True)
        change(updater, key, 0, [page] * 64, apart=True, offset=most // 2)
    elif fault == "all keys":
        monkeypatch.setattr("bluebridge.device.mlx5.objects.key_updates.MOST_KEPT", 16)
        change(updater, empty_key(node, 64), 0, [page] * 8)
        change(updater, key, 0, [page] * 16, apart=True)
    elif fault == "domain":
        updater = node.make_pair(fast_register=1, log_sq_size=4, pd=node.pd + 1)
        updater.connect(pairs[0])
        change(updater, key, 0, [page] * 8)
    else:
        change(updater, node.make_key((), free=1, translations=64), 0, [page] * 8)
    assert ERROR_CQE.get(updater.sent()[-1], "syndrome") == Syndrome.MW_BIND_ERR


def test_what_lists_are_kept_is_counted_down_again(
    pairs: tuple[Pair, Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = pairs
    updater, node = updater_of(b.node), b.node
    page = node.host.allocate(PAGE)
    monkeypatch.setattr("bluebridge.device.mlx5.objects.key_updates.MOST_KEPT", 8)
    for _ in range(2):
        key = empty_key(node, 64)
        change(updater, key, 0, [page] * 8)
        assert node.status(Opcode.DESTROY_MKEY, number=key >> 8) is Status.OK
        key = empty_key(node, 64)
        change(updater, key, 0, [page] * 8)
        values: dict[str, Value] = {**ACCESS, "start": START, "length": PAGE * 8}
        change(updater, key, ENABLE, values=values)
    assert opcodes(updater.sent()) == [CqeOpcode.REQUEST] * 6


def test_long_lists_take_a_share_of_the_loop(pairs: tuple[Pair, Pair]) -> None:
    """Each of these takes 20 milliseconds; 64 of them were one turn."""
    _, b = pairs
    updater, node = updater_of(b.node), b.node
    count, page = 1 << 16, node.host.allocate(PAGE)
    values: dict[str, Value] = {**ACCESS, "start": START, "length": PAGE * count}
    raw, key = listed([page] * count), empty_key(node, count)
    segment = pack(">IIQ", len(raw), node.key, node.memory(raw))
    control = bytes(UMR.pack(octowords=len(raw) // 16, mask=ENABLE))
    context = bytes(MKC.pack({"key": key & 0xFF, **values}))
    for _ in range(4):
        place = updater.sq.address + updater.sq.posted % 16 * 64
        node.wqe(updater.sq, control + context + segment, SendOpcode.UMR)
        node.host.poke(place + 12, key.to_bytes(4, "big"))
    node.store(SEND_DOORBELL, pack(">II", 0, updater.sq.number << 8))
    assert len(updater.sent()) == 1
    node.host.run()
    assert opcodes(updater.sent()) == [CqeOpcode.REQUEST] * 3


def test_parts_that_move_others_take_a_share_of_the_loop(pairs: tuple[Pair, Pair]) -> None:
    """Each moves all that follow, which may be a million: 64 of them were one turn."""
    _, b = pairs
    updater, node, count = updater_of(b.node), b.node, 0xFFF0
    key = node.make_key(
        (), access_mode=AccessMode.KLMS, length64=0, free=1, umr=1, translations=count
    )
    whole = pack(">IIQ", PAGE, node.key, 0) * count
    change(updater, key, ENABLE, entries=whole, values={**ACCESS, "length": PAGE})
    assert opcodes(updater.sent()) == [CqeOpcode.REQUEST]
    control = bytes(UMR.pack(octowords=1))
    for length in range(1, 5):
        segment = pack(">IIQ", 16, node.key, node.memory(pack(">IIQ", length, node.key, 0)))
        place = updater.sq.address + updater.sq.posted % 16 * 64
        node.wqe(updater.sq, control + bytes(MKC.size) + segment, SendOpcode.UMR)
        node.host.poke(place + 12, key.to_bytes(4, "big"))
    node.store(SEND_DOORBELL, pack(">II", 0, updater.sq.number << 8))
    assert len(updater.sent()) == 1
    node.host.run()
    assert opcodes(updater.sent()) == [CqeOpcode.REQUEST] * 3


@pytest.mark.parametrize("fault", ["too long", "short", "no key", "domain", "rights", "memory"])
def test_changes_that_lie_end_in_an_error_and_change_nothing(
    pairs: tuple[Pair, Pair], fault: str
) -> None:
    _, b = pairs
    key = empty_key(b.node, 8)
    pages = [b.node.host.allocate(PAGE)] * 2
    values: dict[str, Value] = {**ACCESS, "start": START, "length": PAGE * 2}
    mask = ENABLE
    if fault == "too long":
        pages = pages * 20
    elif fault == "short":
        values["length"] = PAGE * 100
    elif fault == "no key":
        key += 0x5000
    elif fault == "domain":
        b = b.node.make_pair(fast_register=1, log_sq_size=4, pd=b.node.pd + 1)
        b.connect(pairs[0])
    elif fault == "rights":
        values["local_write"] = 0
    if fault == "memory":
        control = UMR.pack(octowords=4, mask=mask)
        segment = pack(">IIQ", 64, b.node.key, 1 << 50)
        context = bytes(MKC.pack(values))
        b.post(SendOpcode.UMR, bytes(control) + context + segment, last=key)
    else:
        change(b, key, mask, pages, apart=fault == "too long", values=values)
    (failed,) = b.sent()
    assert ERROR_CQE.get(failed, "syndrome") in (Syndrome.MW_BIND_ERR, Syndrome.LOCAL_QP_OP_ERR)
    region = pairs[1].node.adapter.objects.keys.regions.find(empty_key(pairs[1].node, 8) - 0x100)
    assert region is not None
    assert region.free


def test_a_queue_pair_of_user_space_registers_nothing(pairs: tuple[Pair, Pair]) -> None:
    """Its list would name memory by its physical address."""
    _, b = pairs
    users = b.node.make_pair(log_sq_size=4)
    users.connect(pairs[0])
    register(users, empty_key(b.node), [b.node.host.allocate(PAGE)])
    assert ERROR_CQE.get(users.sent()[0], "syndrome") == Syndrome.MW_BIND_ERR


def test_the_middle_of_a_list_that_was_never_given_has_absent_pages_around(
    pairs: tuple[Pair, Pair],
) -> None:
    """A key without bytes is usable, and has no list, until a later change gives it both."""
    a, b = pairs
    key, page = empty_key(b.node), b.node.host.allocate(PAGE)
    change(b, key, ENABLE, values={**ACCESS, "start": START, "length": 0})
    change(b, key, KeyMask.LENGTH, [page] * 2, offset=1, values={"length": 4 * PAGE}, apart=True)
    assert opcodes(b.sent()) == [CqeOpcode.REQUEST] * 2
    a.post(SendOpcode.RDMA_WRITE, remote(START + 2 * PAGE, key) + a.data(b"there"))
    assert opcodes(a.sent()) == [CqeOpcode.REQUEST]
    assert b.node.host.peek(page, 5) == b"there"
    a.post(SendOpcode.RDMA_WRITE, remote(START, key) + a.data(b"absent"))
    (failed,) = a.sent()
    assert ERROR_CQE.get(failed, "syndrome") == Syndrome.REMOTE_ACCESS_ERR
