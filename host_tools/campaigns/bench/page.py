"""A bench run as a table, as JSON, and as docs/benchmarks.md."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bluebridge.host_tools.campaigns.bench import rdma
from bluebridge.host_tools.campaigns.bench.figures import Figure
from bluebridge.host_tools.host_description import HostDescription
from bluebridge.images.source import HOME

ROOT = HOME
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "build" / "bench"

_TEXT = """\
# Benchmarks

Measured by `make bench` (`python -m bluebridge.host_tools.campaigns.bench [up] [hca] [rdma] [log]
[ntb] [ntrdma] [ntrdma-network] [rtrs] [dpdk]`), which writes this page. Guests have
2 vCPUs and 1 GiB each and share the machine with the device server.

| machine | |
|---|---|
{machine}

| figure | measured | goal | |
|---|---|---|---|
{figures}

How each is measured:

- **up** is what a user waits for: from `bluebridge up` until `bluebridge run a` and `run b`, typed
  at the same time, have ended; 15 times from a warm cache, 5 times with `--cold`.
- **krping** runs `size=64,count=500`, validated on both sides; the client's median.
- **Bandwidth** is krping's `bw` with `size=1048576,tx-depth=16`: 1000 RDMA WRITEs posted by the
  guest's Python driver, bytes by the client's clock. All of them move the same 1 MiB, which stays
  in the processor's caches: read it as what the path costs, not as memory bandwidth.
- **Ping-pong** is krping's `wlat` with 8 bytes, both sides polling memory; half of the median round
  trip.
- **Device CPU per doorbell** is the server's processor time for one 8-byte RDMA WRITE between its
  two HCAs, driven over their sockets without guests: the message, fetching and decoding the work
  request, checking keys, moving the data, the completion entry. Median of 9 rounds of 1000, with
  the bus log on and off.
- **The same in the ping-pong** divides the server's processor time over `wlat` (a long run less a
  short one, so that connecting does not count) by the doorbells of both guests. There the server
  falls asleep after each message and finds its caches used by two busy guests when it wakes up.
- **The bus log**: the log calls of 64-byte RDMA WRITEs, seven events each, by endpoints and a tap
  as the server has them, while another process follows the log; every event must arrive there. On
  the log of a million events that is left, `bluebridge log` runs up to its first 50 lines, from
  the start of its process, median of 5. The cost is that of `ib_write_lat` between guests of a
  logged and an unlogged server in turn, median of 11 ratios; below is why it is what it is.

The table is one run, and the ping-pong scatters by up to 40 % from run to run on two cores: repeat
it before comparing. The doorbell goal stands at both of its measurements: they answer differently.

## The kernel's drivers, Soft-RoCE and virtio-net

`rdma` measures with the guests' own programs, perftest and iperf3. Each guest has mlx4_core,
mlx4_en and mlx4_ib on its HCA, and beside it, hot-plugged, a virtio-net NIC (`-netdev dgram`:
frames as datagrams between the two QEMUs, no bridge, no vhost, no offloads) with rdma_rxe on it.

- The two sides of a ratio **take turns** in the same run, {rounds} times each ({tcp_rounds} for
  iperf3), and their medians are compared: the machine's variation affects both. The bus log is off.
- Latencies are perftest's `t_typical`, half of a round trip, bandwidths its average; RoCE has an
  MTU of 1024 on the HCA and of 4096 on Soft-RoCE (netdev MTU 4200), which is in its favour.
- A ratio says how many times better the HCA is.
- **`--blueflame on`** and **the bus log on**: two more guests beside the first two, in turn with
  them. Their `without` rows are of that race; compare within a race only.

## The bridge

`rtrs` measures RNBD by the kernel's modules on both sides, one port, the bus log off:

- **Bandwidth** is fio's, 128 KiB at a time, 8 under way, on a RAM disk of the other guest; over the
  HCA and over Soft-RoCE on virtio-net in turn, in the same guests, three times; the medians.
- **4 KiB random reads** likewise, RNBD and nvme-rdma on two RAM disks in turn.
- **Fail-over**: two ports, random reads, all messages of one port vanish until the client gives the
  path up; the longest time without a completion in the client's guest, sampled every 10 ms.

`ntb` measures an Intel NTB of the fourth generation with I/OAT engines, the bus log off.

- **ntb_perf** runs five times in each guest; the median.
- **iperf3** sends from b to a for 4 s after one that does not count. The ways take turns three
  times, with ntb_transport loaded anew for each; ntb_netdev's MTU is its 65510.
- **`ntrdma-network`** has ping and iperf3 over the interfaces of NTRDMA
  (`bluebridge ntrdma ethernet`) and over ntb_netdev, which have the bridge of one pair in turn,
  three times; the medians.
- **Stores** are 1 MiB by ntb_tool, eight bytes each, and a read behind them, which returns when
  all have arrived. QEMU queues without bound: what a guest has stored and the server has not yet
  taken makes a read wait, and after `x-msg-timeout` it finds all ones. So the bound is the rate
  times that.
- **ntb_pingpong** runs with the bus log on, which has when each side rings: the median of the time
  from one side's ring to the other's answer, each 2000 times. Between lie the interrupt, the
  driver's handler and its timer, which is due at once.
- **Ping-pongs** are those of `python3 -m bluebridge.guest.drivers.ntb pingpong`: by doorbell, each
  side sleeping until its interrupt wakes its process; by DMA, each side polling its memory for the
  last of 64 bytes.

`ntrdma` measures the guests' own NTRDMA over the bridge and the DMA engine, with the programs of
`bluebridge ntrdma perf`:

- **Latencies** and the DMA engine's ping-pong take turns five times, the bus log off; the medians.
  A read is from its posting to its completion, the others are half of a ping-pong.
- **Stores for each request** are counted in the bus log of another run: 64 requests of each kind,
  posted one by one, or 4 or 16 at a time; the median batch. The least is the protocol's: the data
  of each write, and for a batch entries, index, doorbell and interrupt there and back.
- **Modelled** times are those of `bluebridge model` for the transactions of one request and its
  answer, up to the sender's interrupt.
- **Since these figures** the engine gives out actions, a poll that finds nothing costs less and a
  receive rings the engine with the send behind it. Against the goals of that work:

| figure | before | goal | measured |
|---|---|---|---|
| a strict peer of version 0.1, both roles, both generations, DMA and CPU, TCP | SEND, WRITE | \
all | all, in `make test` |
| krping, 64 bytes, median | 23 to 31 ms | 5 ms | 8.6 ms; in turn with the revision before 69 and \
55 ms, at least 39 and 18 ms |
| krping, 10,000 iterations validated | 5:24 | 1:30 | 1:26 by that median; over 5:40 on the slow \
machine |
| rc_rdma_write_lat, rc_lat, rc_rdma_read_lat, p50 | 384, 851, 1,014 us | 200, 400, 500 us | 525, \
1,180, 1,090 us; in turn 2.4, 4.1, 4.1 ms before and 2.4, 4.6, 5.0 ms |
| RTRS over NTRDMA, 4 KiB requests | 2 to 4/s | 200/s | 106 to 159/s |
| ping over its interface, against ntb_netdev's | 3 to 4 | 1.5 | 2.7 to 3.6 |
| `ntrdma perf --backend ntb+cpu --size 1048576` | ends the link | runs | runs |
| the world, 10,000 seeds; planted defects | 0 failures; 7 of 16 unnoticed | 0; all noticed | \
824,973 operations, 13,537 ends: 0 failures; all noticed |
| deaths with guests | 23 | 330 | 123: 0 hangs, 0 wrong bytes, nothing grew |
| functions of the engine with callbacks; its files over 220 lines | 19; 6 | 0; 0 | 0; 0 |

  "In turn" is of 2026-11-26: both revisions interpreted, three rounds, medians, on a machine where
  a byte to another process and back takes 80 us and `ib_write_lat` 67 us in place of 17. Polling
  got no faster there: two guests that poll leave the server no core of its own. Sleeping did.

## DPDK

`dpdk` measures DPDK's [testpmd](dpdk.md), one queue, one forwarding core in each guest: txonly in
b, rxonly in a, frames of 64 bytes and their FCS, 3 s, in turn five times over the HCA and over a
virtio-net NIC that vfio-pci has (`-netdev dgram`, no vhost, DPDK's own driver); the medians of what
arrived. Frames lost are those of all rounds: sent less received.

## What the bus log costs a message

A message of `ib_write_lat` is six events: doorbell, entry, request, payload, answer, completion.
Each is packed into its record when it is noted. In compiled code that takes 50 ns, the clock
included (`device/buslog/native_packing.py`), and collecting what is kept of entries and payloads
about as much; interpreted, packing takes 0.3 us for an access or a transfer and 0.6 us for a
message of the fabric. 64 KiB of records are written at once, or what there is 50 ms after the first
of them; without events nothing wakes the server.

## Compiled, against the revision before

Both revisions in turn between two guests (TCG, two cores, 2026-11-22), two starts of each, medians;
the bus log on. `ib_write_lat -s 64`: 76.9 and 26.3 us; `ib_send_lat -s 64`: 69.8 and 29.8 us;
`ib_send_lat -e -s 64`: 375 and 247 us; `ib_write_lat -s 64` with `--blueflame on`: 255 and 164 us;
an idle pair with the kernel's drivers, all processes: 11.7 and 7.6 % of a core, of which the server
1.4 and 1.2 %.

Processor time of the server for one of sixteen 8-byte RDMA WRITEs behind a doorbell, without
guests, log off and on, after each step:

| step | off | on |
|---|---|---|
| interpreted | 23.8 us | 43.8 us |
| hot modules compiled by mypyc | 7.5 to 10 us | 12.5 to 15 us |
| records packed as they are noted, constants final | 8.8 us | 12.5 us |
| members of enumerations looked up once, messages with their own `__init__` | 6.2 us | 8.8 us |

The rows of `up`, `log`, `ntb` and of MTU 9000 in the table above are of 2026-11-21, before
compiling. Not measured since: doorbell to interrupt over the bridge, the device's time of
`ib_send_lat -e`.

Where the goals were not reached: what the log adds to `ib_write_lat` is mostly what it keeps of
entries and payloads, and the call through the bus's interface, which is not native; BlueFlame's
floor is in [blueflame.md](blueflame.md); of an idle pair's time most is QEMU's, and the server's is
twelve commands a second of each guest's mlx4_en.

## What costs grow with

Measured on 2026-11-22 at three sizes each; an exponent of 0 is flat, 1 in proportion. All that
was measured lies between -0.22 and 0.17 but for one cost.

- **An RDMA WRITE** costs the device 40 us by one of two connected queue pairs and 44 us beside
  10,000 pairs, 52 and 61 us if another one writes each time; 44 and 70 us if its key is one of
  523,264. Looking one up is a dictionary's work; what is left is the processor's caches. 1,000
  completion queues cost neither device nor guest more than one.
- **Pairs**: the eighth `bluebridge up` takes 4.3 s and the first 3.8 s; each idle pair has its
  own 5 % of a core and two guests of 400 MiB.
- **A log** is read from the place that a binary search in its index finds, and in parts of 256
  KiB: the first screen of 10 million events takes the time and the memory of that of 100,000.
  Rare events are the exception (an exponent of 0.5, 2.8 s): the index does not know kinds, so
  all events before them are looked at.
- **A test** that is added costs `make test` a millisecond.
"""


def table(figures: Sequence[Figure]) -> str:
    """The figures as aligned text."""
    rows = [(f.title, f.shown(), f.goal, f.verdict()) for f in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def write_json(machine: HostDescription, figures: Sequence[Figure]) -> Path:
    """A dated file with everything; returns its path."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    content = {"machine": asdict(machine), "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def completed(figures: Sequence[Figure]) -> list[Figure]:
    """`figures` and, for whatever this run left out, the newest figures of earlier runs."""
    known = {figure.key: figure for figure in figures}
    for path in sorted(RESULTS.glob("*.json"), reverse=True):
        content: dict[str, Any] = json.loads(path.read_text())
        for figure in content["figures"]:
            known.setdefault(figure["key"], Figure(**figure))
    return list(known.values())


def write_page(machine: HostDescription, figures: Sequence[Figure]) -> None:
    """Write docs/benchmarks.md anew."""
    PAGE.write_text(
        _TEXT.format(
            machine="\n".join(f"| {label} | {value} |" for label, value in machine.rows()),
            figures="\n".join(
                f"| {f.title} | {f.shown()} | {f.goal} | {f.verdict()} |" for f in figures
            ),
            rounds=rdma.ROUNDS,
            tcp_rounds=rdma.TCP_ROUNDS,
        )
    )
