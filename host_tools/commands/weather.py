"""`bluebridge weather`: packets of a link vanish, come late, twice or damaged."""

from __future__ import annotations

import argparse
import contextlib

from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import guests

_KINDS = {
    "mark": "packets that arrive marked as having met congestion, of those that know of ECN",
    "drop": "packets that vanish",
    "corrupt": "packets that arrive damaged, and are refused by their check sum",
    "duplicate": "packets that arrive twice",
    "hold": "packets that are kept until `clear`, and arrive then",
    "reorder": "packets that arrive a millisecond late, behind others",
    "delay": "how long all the others take: `2ms`",
    "rate": "how fast all the others arrive, one after the other: `100Mb`, `1Gb` each second",
}
_FORMS = {"delay": "TIME", "rate": "BITS"}
_ACTIONS = {"mark": "ecn"}
"""Words of rules that are others than those of the options."""
_REORDER_MS = "1"
_WHICH = "RATE|WORDS"

_TIMES = {"ms": 1.0, "us": 1e-3, "s": 1e3}
"""Units of times in milliseconds."""
_RATES = {"Gb": 1e3, "Mb": 1.0, "kb": 1e-3}
"""Units of rates in Mb/s."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Let packets of a link meet weather, both ways: of `bluebridge up --wire packets` single "
        "packets, otherwise whole messages. Each call adds to the weather; `bluebridge link GUEST "
        "rules` counts what it took. A RATE is `1%` or `0.01`; WORDS are conditions such as "
        "'qp=1 message=3 psn=+4 transmission=1', as `bluebridge link --help` lists them."
    )
    parser.add_argument("link", metavar="LINK", help="a-b of two guests, or a, a/2: the port")
    parser.add_argument("clear", nargs="?", choices=("clear",), help="all rules of the link end")
    for kind, text in _KINDS.items():
        parser.add_argument(f"--{kind}", metavar=_FORMS.get(kind, _WHICH), help=text)
    parser.add_argument(
        "--rewrite",
        metavar="HEADER.FIELD=VALUE",
        help="another value in a field of all packets that have it, such as ipv4.ttl=1",
    )
    parser.add_argument("--partition", action="store_true", help="nothing arrives any more")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of all chances (default 0)"
    )


def main(options: argparse.Namespace) -> int:
    """Add weather to the link, or end it; returns 0. Raises `LabError`."""
    link, dash, other = options.link.partition("-")
    guest = guests.find_up(link.partition("/")[0])
    peer = other.partition("/")[0].partition(".")[0]
    if dash and peer not in guest.pair.names():
        names = ", ".join(guest.pair.names())
        raise UsageError(
            f"there is no guest {peer!r} at the other end of {link}", f"its pair has {names}"
        )
    if other and len(guest.pair.guests) > 2:
        raise UsageError(
            f"{options.link} is no cable: each guest's leads to a switch", f"write {link}"
        )
    if options.delay and options.rate:
        raise UsageError("--delay and --rate both take all packets", "give one of them")
    lines = _lines(options, link)
    if options.clear:
        if lines:
            raise UsageError("clear ends the weather", "leave the other options out")
        guest.tell(f"remove {link}")
        print(f"link {link}: clear")
        return 0
    if not lines:
        raise UsageError("which weather?", f"give one of --{', --'.join(_KINDS)}, or `clear`")
    for line in lines:
        (number,) = guest.tell(line)
        print(f"link {link}: rule {number}: {line}")
    return 0


def _lines(options: argparse.Namespace, link: str) -> list[str]:
    """Return the orders to the device server: first what goes on, last what takes all packets."""
    lines = [] if options.rewrite is None else [f"rewrite {link} {options.rewrite}"]
    for kind in _KINDS:
        value = getattr(options, kind)
        if value is None:
            continue
        if kind == "delay":
            time = _scaled(value, _TIMES, "time", "write 2ms, 500us or 1s")
            lines.append(f"delay {link} {time}")
        elif kind == "rate":
            rate = _scaled(value, _RATES, "rate of bits", "write 100Mb, 1Gb or 64kb")
            lines.append(f"rate {link} {rate}")
        elif kind == "reorder":
            lines.append(f"delay {link} {_REORDER_MS} {_which(value, options.seed)}")
        else:
            lines.append(f"{_ACTIONS.get(kind, kind)} {link} {_which(value, options.seed)}")
    if options.partition:
        lines.append(f"drop {link}")
    return lines


def _which(value: str, seed: int) -> str:
    if "=" in value:
        return value
    percent = value.endswith("%")
    try:
        rate = float(value.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise UsageError(f"{value!r} is no rate", "write 1%, 0.01, or conditions such as psn=+4")
    return f"probability={rate:g} seed={seed}"


def _scaled(value: str, units: dict[str, float], what: str, mend: str) -> str:
    """Return a number with its unit as the number that the server reads."""
    for unit, factor in units.items():
        if value.endswith(unit):
            with contextlib.suppress(ValueError):
                return f"{float(value.removesuffix(unit)) * factor:g}"
            break
    raise UsageError(f"{value!r} is no {what}", mend)
