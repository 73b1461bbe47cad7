"""Pings judged by the guest's kernel: each request got its answer, however late.

`ping` cannot tell loss from delay: with a time limit (-w) it asks on until as many answers came as
it was to ask for, without one it leaves two round trips to the last answer, and what its socket has
no room for it never sees.
"""

from __future__ import annotations

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine.vm import Vm

ANSWERED = "each request was answered"
"""The text that `line` prints when all pings were answered."""

SELDOM = 2
"""Seconds between large requests. To a guest that stood still they come in a heap, and what its
kernel has under way of answers is limited to twice 64 KiB (net/ipv4/icmp.c: icmp_init)."""

_COUNTERS = "/proc/net/snmp /proc/net/snmp6"
_PATIENCE = 200
"""The number of looks, 0.1 s apart, for the answers that are late."""
_LIMIT = 100
"""The seconds in which all answers that ping itself waits for must come."""
# Two lines of /proc/net/snmp, names and values; one line per counter in /proc/net/snmp6.
_UNANSWERED = """awk '
/^Icmp: / && !names { names = split($0, name); next }
/^Icmp: / { for (i = 2; i <= names; i++) count[name[i]] = $i }
/^Icmp6/ { count[$1] = $2 }
END { print count["OutEchos"] + count["Icmp6OutEchos"] \\
    - count["InEchoReps"] - count["Icmp6InEchoReplies"] }'"""


def line(address: str, options: str = "") -> str:
    """A shell line that pings `address` once it has answered, and fails if a request is lost.

    `options` are those of ping, with the `-c` that ends it. Before an address is known, over
    InfiniBand the path to it too, the kernel keeps three packets (IPOIB_MAX_PATH_REC_QUEUE) and
    drops the others.
    """
    return f"""(until ping -c 1 -W 1 {address} > /dev/null; do :; done
unanswered() {{ {_UNANSWERED} {_COUNTERS}; }}
before=$(unanswered)
ping -w {_LIMIT} {options} {address} || exit 1
for look in $(seq {_PATIENCE}); do
    [ $(unanswered) -le $before ] && echo {ANSWERED} && exit 0
    sleep 0.1
done
echo "$(($(unanswered) - before)) requests got no answer"
exit 1)"""


def check(machine: Vm, address: str, options: str = "", timeout: float = 120.0) -> str:
    """Run the command of `line` in a guest; return the output.

    Raises `LabError` when a request was lost.
    """
    done = machine.run(line(address, options), timeout=timeout, check=False)
    if done.status != 0:
        said = done.text.strip().splitlines() or ["no word"]
        raise LabError(
            f"guest {machine.name}: ping {options} {address}: {said[-1]}",
            f"read {machine.transcript}",
            done.text,
        )
    return str(done.text)
