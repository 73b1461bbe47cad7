"""The kernel's clients of a bridge, loaded, found ready, unloaded in guests of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.device.layout.ntb.models import MODELS, BridgeModel
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.running import wait_until

SECONDS = 120.0
ADDRESSES = {"a": "10.9.1.1", "b": "10.9.1.2"}

TOOL = "cd /sys/kernel/debug/ntb_tool/*; "
PERF = "cd /sys/kernel/debug/ntb_perf/*; "
MSI = "cd /sys/kernel/debug/ntb_msi_test/*; "
COUNT = "cat /sys/kernel/debug/ntb_pingpong/*/count"
STATS = "/sys/kernel/debug/ntb_transport/*/qp0/stats"
TRANSPORT = "max_mw_size=0x100000"
RATE = re.compile(r"copied \d+ bytes in \d+ usecs, (\d+) MBytes/s")
"""The line that ntb_perf prints at the end of a run."""


class Unmet(LabError):
    """A result of a client differs from the expected one."""


class Guests:
    """The guests of a pair with a bridge, and the model of that bridge."""

    def __init__(self, pair: Pair, model: BridgeModel) -> None:
        self.pair = pair
        self.model = model

    @property
    def machines(self) -> tuple[Vm, Vm]:
        """The guests: a, the upstream side, and b."""
        return self.pair.a, self.pair.b

    @property
    def ways(self) -> tuple[tuple[Vm, Vm], tuple[Vm, Vm]]:
        """Return each guest with its peer."""
        a, b = self.machines
        return (a, b), (b, a)

    def run(self, guest: Vm, line: str, limit: float = SECONDS) -> str:
        """Return the output of a shell line; raises `LabError` when it fails or takes longer."""
        return str(guest.run(line, timeout=limit).text).strip()

    def both(self, line: str, limit: float = SECONDS) -> None:
        """Run a shell line in both guests at once. Raises `LabError`."""
        self.each(lambda guest: self.run(guest, line, limit))

    def each(self, action: Callable[[Vm], object]) -> None:
        """Call `action` with each guest, both at once. Raises `LabError`."""
        self.pair.both(action)

    def until(self, guest: Vm, condition: str, limit: float = SECONDS) -> None:
        """Wait until a shell condition holds in a guest.

        Raises `LabError` after `limit` seconds.
        """
        self.run(guest, wait_until(condition), limit)

    def messages(self, guest: Vm, words: str) -> str:
        """Return the guest's last kernel message that contains `words`, without its time."""
        said = guest.run(f"dmesg | grep '{words}' | tail -n 1", check=False).text.strip()
        return said.partition("] ")[2] or said

    def expect(self, what: str, found: object, wanted: object) -> None:
        """Raise `Unmet`, with the name `what`, unless `found` equals `wanted`."""
        if found != wanted:
            raise Unmet(f"{what}: {found!r} instead of {wanted!r}")


@dataclass(frozen=True)
class Client:
    """A client of the bridge by its shell lines; `{address}` stands for the guest's own address."""

    name: str
    load: str
    ready: str
    """A shell condition that holds when both sides are loaded and the link is up."""
    unload: str
    models: tuple[BridgeModel, ...] = MODELS
    """The bridge models on which the client works."""


def netdev(options: str) -> Client:
    """Return the client ntb_netdev over ntb_transport with `options`."""
    return Client(
        f"ntb_netdev {options}".strip(),
        f"modprobe ntb_transport {TRANSPORT} {options} && modprobe ntb_netdev && "
        "ip addr add {address}/24 dev eth0 && ip link set eth0 up",
        "grep -q 1 /sys/class/net/eth0/carrier",
        "rmmod ntb_netdev && rmmod ntb_transport",
    )


def perf(options: str) -> Client:
    """Return the client ntb_perf with `options`.

    It needs a window for each side (perf_setup_peer_mw).
    """
    return Client(
        f"ntb_perf {options}",
        f"modprobe ntb_perf {options}",
        f"({PERF} grep -q 'Out buffer xlat' info)",
        "rmmod ntb_perf",
        tuple(model for model in MODELS if not model.register_window),
    )


def pingpong(delay_ms: int) -> Client:
    """Return the client ntb_pingpong; first generation drivers call their registers unsafe."""
    return Client(
        "ntb_pingpong",
        f"modprobe ntb_pingpong unsafe=1 delay_ms={delay_ms}",
        f"[ $({COUNT}) -gt 1 ]",
        "rmmod ntb_pingpong",
    )


TOOL_CLIENT = Client(
    "ntb_tool",
    # Doorbells that came after the client before was unloaded are pending still, as on hardware.
    f'modprobe ntb_tool; {TOOL} echo "c $(cat db_valid_mask)" > db; echo Y > link',
    f"({TOOL} echo Y > peer0/link_event && echo 0x1000 > peer0/mw_trans0)",
    # rmmod of ntb_tool oopses over a window that is still set up
    f"({TOOL} for n in peer0/mw_trans*; do echo 0 > $n; done; "
    "for n in peer0/peer_mw_trans*; do echo 0:0 > $n; done); rmmod ntb_tool",
)
MSI_TEST = Client(
    "ntb_msi_test",
    "modprobe ntb_msi_test",
    f"({MSI} echo 1 > peer0/ready)",
    "rmmod ntb_msi_test",
    tuple(model for model in MODELS if model.spare_vectors),
)
CYCLED = (
    TOOL_CLIENT,
    pingpong(20),
    perf("use_dma=1 total_order=20"),
    netdev("use_dma=1"),
    netdev(""),
    MSI_TEST,
)


def load(guests: Guests, guest: Vm, client: Client) -> None:
    """Load a client in one guest. Raises `LabError`."""
    guests.run(guest, client.load.replace("{address}", ADDRESSES[guest.name]))


def load_both(guests: Guests, client: Client) -> None:
    """Load a client in both guests at once and wait until both are ready. Raises `LabError`."""
    guests.each(lambda guest: load(guests, guest, client))
    ready(guests, client)


def ready(guests: Guests, client: Client) -> None:
    """Wait until both guests' clients see each other."""
    guests.each(lambda guest: guests.until(guest, client.ready))


def unload_both(guests: Guests, client: Client) -> None:
    """Unload a client in both guests at once. Raises `LabError`."""
    guests.both(client.unload)
