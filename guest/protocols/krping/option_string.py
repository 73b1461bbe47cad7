"""The krping command string: options separated by commas, as the kernel module's README lists."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import Enum

DEFAULT_SIZE = 64
DEFAULT_TX_DEPTH = 64
MAX_SIZE = 1 << 21
"""The largest buffer: a hugepage, which is contiguous; the kernel module stops at 128 KiB."""
MAX_TX_DEPTH = 4096
MAX_COUNT = 1 << 40

FLAGS = frozenset(
    (
        "client", "server", "verbose", "validate", "server_inv", "local_dma_lkey", "read_inv",
        "wlat", "rlat", "poll", "bw", "duplex", "fr",
    )
)  # fmt: skip
NUMBERS = {
    "port": (1, 0xFFFF),
    "count": (0, MAX_COUNT),
    "size": (1, MAX_SIZE),
    "tx-depth": (1, MAX_TX_DEPTH),
    "tos": (0, 0xFF),
}
_SWITCHES = (
    "verbose", "validate", "server_inv", "local_dma_lkey", "read_inv", "poll", "duplex",
)  # fmt: skip
"""The flags that are fields of `Options` by the same name."""
STRINGS = frozenset(("addr", "addr6", "mem_mode"))
ALIASES = {"txdepth": "tx-depth", "tx_depth": "tx-depth"}


class OptionError(ValueError):
    """A command string cannot be run; the text is one line for the user."""


class MemMode(Enum):
    """The ways in which buffers are registered."""

    DMA = "dma"
    REG = "reg"


class Test(Enum):
    """The tests that may run once the connection stands."""

    __test__ = False  # pytest: this is no class of tests

    PING = "ping"
    WLAT = "wlat"
    RLAT = "rlat"
    BW = "bw"
    FR = "fr"


@dataclass(frozen=True, slots=True)
class Options:
    """A checked command. `count` 0 means endless; `size` in bytes; `addr` dotted IPv4, or IPv6."""

    server: bool
    addr: str
    port: int
    count: int = 0
    size: int = DEFAULT_SIZE
    verbose: bool = False
    validate: bool = False
    mem_mode: MemMode = MemMode.DMA
    server_inv: bool = False
    local_dma_lkey: bool = False
    read_inv: bool = False
    test: Test = Test.PING
    poll: bool = False
    duplex: bool = False
    tx_depth: int = DEFAULT_TX_DEPTH
    tos: int = 0
    given: tuple[tuple[str, str | None], ...] = field(default=(), compare=False)


def next_address(address: str) -> str:
    """Return the next host address, by custom the client's; it wraps at the end of a /24."""
    if (own := ipaddress.ip_address(address)).version == 6:
        return str(own + 1)
    network = ipaddress.IPv4Network(f"{address}/24", strict=False)
    hosts = list(network.hosts())
    following = int(ipaddress.IPv4Address(address)) - int(network.network_address)
    return str(hosts[following % len(hosts)])


def parse(command: str) -> Options:
    """Read a command string; raises `OptionError` with one line saying what is wrong."""
    given = _split(command)
    numbers = {name: _number(name, given[name]) for name in NUMBERS if name in given}
    if ("server" in given) == ("client" in given):
        raise OptionError("must be either client or server")
    server = "server" in given
    if "port" not in given:
        raise OptionError("port=N is missing")
    if "addr" in given and "addr6" in given:
        raise OptionError("addr and addr6 are given: choose one")
    if not server and not {"addr", "addr6"} & given.keys():
        raise OptionError("a client needs the server's address: addr=A.B.C.D is missing")
    options = Options(
        server=server,
        addr=_address(given, server),
        port=numbers["port"],
        count=numbers.get("count", 0),
        size=numbers.get("size", DEFAULT_SIZE),
        mem_mode=_mem_mode(given.get("mem_mode") or "dma"),
        test=_test(given),
        tx_depth=numbers.get("tx-depth", DEFAULT_TX_DEPTH),
        tos=numbers.get("tos", 0),
        given=tuple(given.items()),
        **{flag: flag in given for flag in _SWITCHES},
    )
    _check(options)
    return options


def _split(command: str) -> dict[str, str | None]:
    """Return the options in order, each at most once, with operand or None."""
    given: dict[str, str | None] = {}
    for word in command.strip().strip("\0").split(","):
        name, equals, operand = word.strip().partition("=")
        name = ALIASES.get(name, name)
        if not name:
            raise OptionError("an option is empty: options are separated by single commas")
        if name not in FLAGS and name not in NUMBERS and name not in STRINGS:
            raise OptionError(f"unknown option {name}")
        if name in FLAGS and equals:
            raise OptionError(f"option {name} takes no operand")
        if name not in FLAGS and not operand:
            raise OptionError(f"option {name} needs an operand: {name}=...")
        if name in given:
            raise OptionError(f"option {name} is given twice")
        given[name] = operand if equals else None
    return given


def _number(name: str, operand: str | None) -> int:
    low, high = NUMBERS[name]
    text = operand or ""
    if not (text.isascii() and text.isdigit()):
        raise OptionError(f"{name}={text} is no number")
    if not low <= int(text) <= high:
        raise OptionError(f"Invalid {name} {text} (valid range is {low} to {high})")
    return int(text)


def _address(given: dict[str, str | None], server: bool) -> str:
    """Parse addr or addr6, whose scope is dropped; the unspecified address is for servers only."""
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    text = given.get("addr6") or given.get("addr") or "0.0.0.0"
    try:
        if "addr6" in given:
            address = ipaddress.IPv6Address(text.partition("%")[0])
        else:
            address = ipaddress.IPv4Address(text)
    except ValueError as error:
        if "addr6" in given:
            raise OptionError(f"addr6={text} is no IPv6 address") from error
        raise OptionError(f"addr={text} is no IPv4 address in dotted decimal format") from error
    if not server and address.is_unspecified:
        raise OptionError(f"a client cannot connect to {address}")
    return str(address)


def _mem_mode(text: str) -> MemMode:
    try:
        return MemMode(text)
    except ValueError as error:
        raise OptionError(f"unknown mem_mode {text} (dma or reg)") from error


def _test(given: dict[str, str | None]) -> Test:
    tests = (Test.FR, Test.WLAT, Test.RLAT, Test.BW)
    picked = [test for test in tests if test.value in given]
    if len(picked) > 1:
        raise OptionError("Pick only one test: fr, bw, rlat, wlat")
    if Test.FR in picked and "server" in given:
        raise OptionError("must be client to run fr: the server is one without a test")
    return picked[0] if picked else Test.PING


def _check(options: Options) -> None:
    if options.mem_mode is not MemMode.REG:
        for name in ("server_inv", "read_inv"):
            if getattr(options, name):
                raise OptionError(f"{name} is valid only with mem_mode=reg")
    if options.duplex and options.test is not Test.BW:
        raise OptionError("duplex is valid only with bw")
    if options.poll and options.test is not Test.RLAT:
        raise OptionError("poll is valid only with rlat")
    if options.test is not Test.PING:
        name = options.test.value
        if options.test is not Test.FR and options.mem_mode is not MemMode.DMA:
            raise OptionError(f"{name} is valid only with mem_mode=dma")
        if options.test is not Test.FR and not options.count:
            raise OptionError(f"{name} needs count=N, on both sides the same")
        if options.validate or options.verbose:
            raise OptionError(f"{name} moves no ping data: leave validate and verbose out")
