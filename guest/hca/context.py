"""The device as a whole: bring-up in the order of Linux's mlx4_load_one, and tear-down."""

from __future__ import annotations

import contextlib
import threading

from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP, QUERY_FW, BmmeFlag
from bluebridge.device.layout.mlx4.commands import MAILBOX_SIZE, Opcode
from bluebridge.device.layout.mlx4.contexts import MAP_ENTRY
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, RESERVED_UARS
from bluebridge.guest.bus.interface import Bus, DmaMemory
from bluebridge.guest.hca.errors import HcaError, VerbsError
from bluebridge.guest.hca.memory_regions import MAX_FAST_REG_PAGES
from bluebridge.guest.hca.pd import Pd
from bluebridge.guest.hca.ports import Port
from bluebridge.guest.hca.posting.blueflame import BlueFlame, BlueFlameUse
from bluebridge.guest.hca.queues.channel import CompChannel
from bluebridge.guest.hca.queues.cq import Cq
from bluebridge.guest.hca.queues.eq import AsyncChannel
from bluebridge.guest.hca.queues.qp import Qp
from bluebridge.guest.hca.resources.command import Commands
from bluebridge.guest.hca.resources.health import Health
from bluebridge.guest.hca.resources.icm import LOG_CQS, LOG_EQS, LOG_MPTS, LOG_QPS, LOG_SRQS, Icm
from bluebridge.guest.hca.resources.limits import Limits
from bluebridge.guest.hca.resources.numbers import Numbers
from bluebridge.guest.hca.resources.reset import release_device, reset_device
from bluebridge.guest.verbs.enums import QpType
from bluebridge.guest.verbs.values import DeviceAttr, PortAttr

DEFAULT_VECTORS = 16
COMMAND_REVISIONS = range(2, 4)
INTERRUPT_SECONDS = 10.0
_NOP_MODIFIER = 0x1F
_SPECIAL_QPS = 8
_GSI_OFFSET = 2
_QPN_BITS = 23
_MPT_BITS = 24


class Context:
    """An open device: `open_device` makes one; see guest/verbs/__init__.py for the interface."""

    name = "mlx4_0"

    def __init__(
        self, bus: Bus, mac: bytes | None, vectors: int, mtu: int, use: BlueFlameUse | None
    ) -> None:
        self.bus = bus
        self.cqs: dict[int, Cq] = {}
        self.qps: dict[int, Qp] = {}
        self._vector_lock = threading.Lock()
        self._firmware_memory: DmaMemory | None = None
        self._open = False
        self.health = Health(bus, self.name)
        reset_device(bus, self.health)
        self.commands = Commands(bus, self.health)
        self._firmware = self._start_firmware()
        self._dev_cap = self.commands.query(Opcode.QUERY_DEV_CAP)
        self.limits = Limits.of(self._dev_cap)
        self.icm = Icm(bus, self.commands, self._dev_cap)
        self._number_spaces()
        self.blueflame = None if use is None else BlueFlame(bus, self._dev_cap, self.uar, use)
        self.icm.map()
        self._init_hca()
        self._open = True
        self._fds = bus.enable_interrupts(vectors)
        self._free_vectors = list(range(vectors - 1, 0, -1))
        self.port = Port(self, mac, mtu)
        self.async_events = AsyncChannel(self, 0)
        self._check_interrupts()
        self.commands.run(Opcode.CONF_SPECIAL_QP, self._special_base)
        self.port.start()

    # -- the objects of verbs -------------------------------------------------------------------

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Contiguous zeroed DMA memory; raises `MemoryError`."""
        return self.bus.allocate(length, align)

    def alloc_pd(self) -> Pd:
        """A protection domain."""
        return Pd(self)

    def create_comp_channel(self) -> CompChannel:
        """A completion channel with an interrupt vector of its own."""
        with self._vector_lock:
            if not self._free_vectors:
                raise VerbsError("no interrupt vector is left for another completion channel")
            vector = self._free_vectors.pop()
        channel = CompChannel(self, vector)
        self._channels.append(channel)
        return channel

    def create_cq(self, entries: int, channel: CompChannel | None = None) -> Cq:
        """A completion queue; `channel` is where its events go."""
        return Cq(self, entries, channel)

    def query_device(self) -> DeviceAttr:
        """What the device can do."""
        fw, cap = self._firmware, self._dev_cap
        version = [QUERY_FW.get(fw, f"fw_{part}") for part in ("major", "minor", "subminor")]
        bmme = QUERY_DEV_CAP.get(cap, "bmme_flags")
        mac = self.port.mac
        return DeviceAttr(
            name=self.name,
            fw_version=".".join(map(str, version)),
            node_guid=int.from_bytes(mac[:3] + b"\xff\xfe" + mac[3:], "big"),
            max_qp_wr=self.limits.qp_wqes,
            max_cqe=(1 << self.limits.log_cqes) - 1,
            max_sge=QUERY_DEV_CAP.get(cap, "max_sq_sge"),
            max_qp_rd_atomic=1 << QUERY_DEV_CAP.get(cap, "log_max_requester_depth"),
            max_msg=1 << QUERY_DEV_CAP.get(cap, "log_max_msg"),
            page_size_cap=(1 << 64) - (1 << QUERY_DEV_CAP.get(cap, "log_page_size")),
            max_fast_reg_pages=MAX_FAST_REG_PAGES,
            local_inv=bool(bmme & BmmeFlag.LOCAL_INV),
            fast_reg=bool(bmme & BmmeFlag.FAST_REG_WR),
            flags=QUERY_DEV_CAP.get(cap, "flags_hi") << 32 | QUERY_DEV_CAP.get(cap, "flags_lo"),
        )

    def query_port(self) -> PortAttr:
        """The port's state now."""
        return self.port.refresh()

    def add_gid(self, gid: bytes) -> int:
        """Add a GID of 16 bytes to the port; its index."""
        return self.port.add_gid(gid)

    @property
    def local_dma_lkey(self) -> int | None:
        """The key for local use that reaches all DMA memory, in every PD; None: there is none."""
        if not QUERY_DEV_CAP.get(self._dev_cap, "bmme_flags") & BmmeFlag.RESERVED_LKEY:
            return None
        return QUERY_DEV_CAP.get(self._dev_cap, "reserved_lkey")

    @property
    def gids(self) -> list[bytes]:
        """The port's GIDs; 0 is the link-local one, empty places are zeros."""
        return self.port.gids

    @property
    def mac(self) -> bytes:
        """The port's MAC address."""
        return self.port.mac

    @property
    def port_active(self) -> bool:
        """Whether the link is up, as far as events told."""
        return self.port.active

    def close(self) -> None:
        """Tear down in the order of Linux's mlx4_unload_one; a second call does nothing.

        Queue pairs and queues that are still open are closed first.
        """
        if not self._open:
            return
        self._open = False
        for qp in list(self.qps.values()):
            qp.destroy()
        for cq in list(self.cqs.values()):
            cq.destroy()
        self.port.stop()
        self.commands.run(Opcode.CONF_SPECIAL_QP, 0)
        for channel in list(self._channels):
            channel.close()
        self.async_events.close()
        self.commands.run(Opcode.CLOSE_HCA)
        self.icm.unmap()
        self.commands.run(Opcode.UNMAP_FA)
        if self._firmware_memory is not None:
            self._firmware_memory.free()
        release_device(self.bus)
        self.commands.close()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- for the objects ------------------------------------------------------------------------

    def vector_fd(self, vector: int) -> int:
        """The eventfd of an interrupt vector."""
        return self._fds[vector]

    def free_vector(self, vector: int) -> None:
        """A channel gives its vector back."""
        with self._vector_lock:
            if vector:
                self._free_vectors.append(vector)

    def allocate_qpn(self, kind: QpType) -> int:
        """A number for a new queue pair; QP1 exists once."""
        if kind is not QpType.GSI:
            return self._qp_numbers.allocate()
        if self.gsi_qpn in self.qps:
            raise VerbsError("QP1 is in use already")
        return self.gsi_qpn

    def free_qpn(self, kind: QpType, qpn: int) -> None:
        """Give a number back."""
        if kind is not QpType.GSI:
            self._qp_numbers.free(qpn)

    # -- bring-up -------------------------------------------------------------------------------

    def _start_firmware(self) -> bytes:
        firmware = self.commands.query(Opcode.QUERY_FW)
        revision = QUERY_FW.get(firmware, "cmd_interface_rev")
        if revision not in COMMAND_REVISIONS:
            raise HcaError(f"command interface revision {revision} is unknown")
        pages = QUERY_FW.get(firmware, "fw_pages")
        if pages:
            self._firmware_memory = self.bus.allocate(pages << 12)
            self._map_firmware(self._firmware_memory.address, pages)
        # core/fw.c: mlx4_QUERY_FW decodes the BAR in this way.
        bar = (QUERY_FW.get(firmware, "catas_bar") >> 6) * 2
        self.health.watch(bar, QUERY_FW.get(firmware, "catas_offset"))
        self.commands.run(Opcode.RUN_FW)
        # Ask for the default log page size, as Linux does; old firmware may not know how.
        with contextlib.suppress(VerbsError):
            self.commands.run(Opcode.MOD_STAT_CFG, data=b"\0\0\1\0")
        return firmware

    def _map_firmware(self, address: int, pages: int) -> None:
        entries = [bytes(MAP_ENTRY.pack(page=(address >> 12) + index)) for index in range(pages)]
        per_command = MAILBOX_SIZE // MAP_ENTRY.size
        for start in range(0, pages, per_command):
            part = entries[start : start + per_command]
            self.commands.run(Opcode.MAP_FA, len(part), data=b"".join(part))

    def _number_spaces(self) -> None:
        cap = self._dev_cap

        def reserved(name: str) -> int:
            return 1 << QUERY_DEV_CAP.get(cap, f"log_reserved_{name}")

        self._special_base = -(-reserved("qps") // _SPECIAL_QPS) * _SPECIAL_QPS
        self.gsi_qpn = self._special_base + _GSI_OFFSET
        first_qpn = self._special_base + _SPECIAL_QPS
        self._qp_numbers = Numbers("queue pair", first_qpn, LOG_QPS, _QPN_BITS)
        self.cq_numbers = Numbers("CQ", reserved("cqs"), LOG_CQS)
        self.srq_numbers = Numbers("SRQ", reserved("srqs"), LOG_SRQS)
        # Event queues share doorbell pages with the UARs that the device keeps for itself.
        first_eqn = max(reserved("eqs"), 4 * QUERY_DEV_CAP.get(cap, "reserved_uars"))
        self.eq_numbers = Numbers("EQ", first_eqn, LOG_EQS)
        self.mpt_numbers = Numbers("memory region", reserved("mrws"), LOG_MPTS, _MPT_BITS)
        self.mpt_mask = (1 << LOG_MPTS) - 1
        first_pd = max(1, QUERY_DEV_CAP.get(cap, "reserved_pds"))
        self.pd_numbers = Numbers("protection domain", first_pd, 15)
        self.uar = RESERVED_UARS
        self._channels: list[CompChannel] = []

    def _init_hca(self) -> None:
        size = 1 << (QUERY_DEV_CAP.get(self._dev_cap, "uar_size_code") + 20)
        data = self.icm.init_hca()
        INIT_HCA.set(data, "log_uars", (size // PAGE_SIZE).bit_length() - 1)
        self.commands.run(Opcode.INIT_HCA, data=data)
        self.commands.query(Opcode.QUERY_ADAPTER)

    def _check_interrupts(self) -> None:
        """A NOP in event mode must come back through vector 0, as Linux demands."""
        token = 1
        self.commands.post_event(Opcode.NOP, _NOP_MODIFIER, token)
        status = self.async_events.wait_command(token, INTERRUPT_SECONDS)
        if status is None:
            raise HcaError("no interrupt came for the NOP command")
        if status:
            raise HcaError(f"the NOP command failed with status {status:#04x}")


def open_device(
    bus: Bus,
    mac: bytes | None = None,
    vectors: int = DEFAULT_VECTORS,
    mtu: int = 1500,
    blueflame: BlueFlameUse | None = None,
) -> Context:
    """Take the device behind `bus` over and bring it up with its port.

    `mac` replaces the burned-in address; `vectors` bounds the completion channels to one less;
    `mtu` is that of the Ethernet port; `blueflame` says how to send through BlueFlame, None not to.
    Raises `VerbsError`.
    """
    return Context(bus, mac, vectors, mtu, blueflame)
