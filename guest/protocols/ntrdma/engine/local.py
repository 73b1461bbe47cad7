"""The own protection domains and regions, and requests of queue pairs about them."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.protocols.ntrdma.engine.completions import Schedule
from bluebridge.guest.protocols.ntrdma.engine.own_commands import (
    CreateDomain,
    LocalWork,
    OwnCommands,
    Register,
)
from bluebridge.guest.protocols.ntrdma.engine.queue_pair import QueuePair
from bluebridge.guest.protocols.ntrdma.engine.regions import Domain, FastRegion, Region
from bluebridge.guest.protocols.ntrdma.engine.remote import MOST_DOMAINS
from bluebridge.guest.protocols.ntrdma.engine.sends import SendRequest
from bluebridge.guest.protocols.ntrdma.engine.transport import Operation
from bluebridge.guest.verbs.enums import WcStatus, WrOpcode


class LocalResources:
    """The protection domains and regions of this side.

    All calls return at once, with an operation that ends when the peer has answered.
    """

    def __init__(self, commands: OwnCommands, schedule: Schedule) -> None:
        self.domains: dict[int, Domain] = {}
        self._commands, self._schedule = commands, schedule
        self._fast: dict[int, FastRegion] = {}

    # -- protection domains ---------------------------------------------------------------------

    def create_domain(self) -> CreateDomain:
        """Make a protection domain. Raises `VerbsError`."""
        key = next((n for n in range(MOST_DOMAINS) if n not in self.domains), None)
        if key is None:
            raise VerbsError(f"there are {MOST_DOMAINS} protection domains already")
        domain = self.domains[key] = Domain(key)
        return self._commands.post(_command(CommandCode.PD_CREATE, domain), CreateDomain(domain))

    def delete_domain(self, domain: Domain) -> Operation:
        """Delete a protection domain whose regions and queue pairs are gone."""
        self.domains.pop(domain.key, None)
        return self._commands.post(_command(CommandCode.PD_DELETE, domain), Operation(lenient=True))

    # -- regions --------------------------------------------------------------------------------

    def register(self, domain: Domain, region: Region) -> Operation:
        """Let own work requests and the peer use a region; no one may if the peer refuses."""
        domain.regions[region.key] = region
        return self._commands.post_region(domain, region, Register(domain, region))

    def deregister(self, domain: Domain, key: int, operation: Operation | None = None) -> Operation:
        """Take a region away from the peer; when that has ended nothing uses it any more."""
        domain.regions.pop(key, None)
        command = layout.MR_DELETE.pack(op=CommandCode.MR_DELETE, pd_key=domain.key, key=key)
        return self._commands.post(command, operation or Operation(lenient=True))

    def ended(self, operation: Operation) -> None:
        """Undo what the peer has refused; complete a request that it has carried out."""
        match operation:
            case LocalWork():
                self._work_ended(operation)
            case CreateDomain() if operation.refused:
                self.domains.pop(operation.domain.key, None)
            case Register() if operation.refused:
                self.deregister(operation.domain, operation.region.key)

    def enabled(self) -> None:
        """Make twins of everything at a peer that has none."""
        for domain in self.domains.values():
            self._commands.post(_command(CommandCode.PD_CREATE, domain), Operation())
            for region in domain.regions.values():
                self._commands.post_region(domain, region, Operation())

    # -- registration by work requests ------------------------------------------------------------

    def add_fast_region(self, region: FastRegion) -> None:
        """Let REG_MR name this region."""
        self._fast[region.rkey >> 8] = region

    def remove_fast_region(self, region: FastRegion) -> Operation:
        """Forget a region: REG_MR can no longer name it."""
        self._fast.pop(region.rkey >> 8, None)
        valid = region.invalidate()
        if valid is not None:
            return self.deregister(region.domain, valid.key)
        operation = Operation()
        operation.good = True  # the peer knows of nothing
        return operation

    def begin(self, pair: QueuePair, request: SendRequest, now: float) -> None:
        """Carry out the first request of a queue pair, which is not for the peer.

        Those behind it go on at once if the peer carries out its commands before them.
        """
        wr = request.local
        assert wr is not None
        pair.sends.begin_local()
        if wr.opcode is WrOpcode.NOP:
            self._end_work(pair, request, WcStatus.SUCCESS)
            return
        operation = LocalWork(pair, request, lenient=wr.opcode is WrOpcode.LOCAL_INV)
        if wr.opcode is WrOpcode.REG_MR:
            fast = wr.mr if isinstance(wr.mr, FastRegion) else None
            region = fast.register(pair.domain, wr) if fast is not None else None
            if region is not None:
                self._commands.post_region(pair.domain, region, operation)
        else:
            region = self.invalidate(pair.domain, wr.invalidate_rkey)
            if region is not None:
                self.deregister(pair.domain, region.key, operation)
        if region is None:
            self._end_work(pair, request, WcStatus.MW_BIND_ERR)
        elif not self._commands.ahead(now):
            pair.held_by = request

    def _work_ended(self, work: LocalWork) -> None:
        pair, request = work.pair, work.request
        if pair.epoch != work.epoch or request.ending is not None:
            return
        if pair.held_by is request:
            pair.held_by = None
        if pair.state is QueueState.READY_TO_SEND:
            status = WcStatus.MW_BIND_ERR if work.refused else WcStatus.SUCCESS
            self._end_work(pair, request, status)
            self._schedule.make_runnable(pair.key)

    def _end_work(self, pair: QueuePair, request: SendRequest, status: WcStatus) -> None:
        pair.stopped = pair.stopped or status is not WcStatus.SUCCESS
        pair.sends.end_local(request, status)

    def invalidate(self, domain: Domain, key: int) -> Region | None:
        """End a registration by work request and return its region, None if it is not valid."""
        fast = self._fast.get(key >> 8)
        if fast is None or fast.domain is not domain:
            return None
        if fast.registered is None or fast.registered.key != key:
            return None
        return fast.invalidate()


def _command(code: CommandCode, domain: Domain) -> bytearray:
    return layout.PD.pack(op=code, pd_key=domain.key)
