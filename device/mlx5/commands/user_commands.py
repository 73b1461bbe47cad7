"""Commands on user contexts and on memory of users (Linux `ib/devx.c`)."""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.contexts import PAGE_SHIFT
from bluebridge.device.layout.mlx5.user_contexts import CREATE_UCTX, CREATE_UMEM, GENERAL_OBJECT
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.command import Rule, number_of, numbered
from bluebridge.device.mlx5.settings.refused import Refused


def create_uctx(adapter: Adapter, data: bytes) -> bytes:
    """Make a user context, and return its number."""
    return numbered(adapter.users.create(CREATE_UCTX.get(data, "rights")))


def destroy_uctx(adapter: Adapter, data: bytes) -> None:
    """Destroy a user context, which has no object any more."""
    adapter.users.destroy(number_of(data))


def create_umem(adapter: Adapter, data: bytes) -> bytes:
    """Keep a list of pages that later commands name, and return its number."""
    get = CREATE_UMEM.get
    if get(data, "ats"):
        raise Refused(Status.BAD_PARAM, "the device does not translate addresses")
    shift, start = get(data, "log_page_size") + PAGE_SHIFT, get(data, "page_offset")
    listed, count = data[CREATE_UMEM.size :], get(data, "pages")
    return numbered(adapter.pages.users.create(listed, count, shift, start))


def destroy_umem(adapter: Adapter, data: bytes) -> None:
    """Forget a list of pages, in which no object is any more."""
    adapter.pages.users.destroy(number_of(data))


def no_object(adapter: Adapter, data: bytes) -> bytes:
    """Refuse objects by type: the capability `general_obj_types` names none."""
    raise Refused(Status.BAD_PARAM, f"general objects of type {GENERAL_OBJECT.get(data, 'type')}")


RULES: dict[int, Rule] = {
    Opcode.CREATE_UCTX: Rule(create_uctx, CREATE_UCTX.size),
    Opcode.DESTROY_UCTX: Rule(destroy_uctx),
    Opcode.CREATE_UMEM: Rule(create_umem, CREATE_UMEM.size),
    Opcode.DESTROY_UMEM: Rule(destroy_umem),
    **{
        opcode: Rule(no_object)
        for opcode in (
            Opcode.CREATE_GENERAL_OBJECT, Opcode.MODIFY_GENERAL_OBJECT,
            Opcode.QUERY_GENERAL_OBJECT, Opcode.DESTROY_GENERAL_OBJECT,
        )
    },
}  # fmt: skip
