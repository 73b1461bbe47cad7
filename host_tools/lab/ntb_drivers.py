"""Loads the kernel's NTB drivers in a guest and waits until they are ready."""

from __future__ import annotations

from bluebridge.device.layout.ntb.models import BY_NAME
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine.vm import Vm

_SECONDS = 120.0
_LOADS = 3
_TRANSPORT = "modprobe ntb_transport use_dma=1 max_mw_size=0x100000 && modprobe ntb_netdev"
# ntb_msi_setup_mws sets a window to the address that interrupt 0 of the bridge is sent to, which
# has its CPU in bits 12 to 19, rounded to 4096 bytes; the Switchtec driver refuses an address that
# is not a multiple of the window's size (switchtec_ntb_mw_set_trans). Only that of CPU 0 is one.
_ON_FIRST_CPU = """
default=/proc/irq/default_smp_affinity
before=$(cat $default)
echo 1 > $default
modprobe MODULE
status=$?
echo $before > $default
exit $status
"""
_LINK = """
for try in $(seq 200); do
    for net in /sys/class/net/*; do
        [ "$(ethtool -i ${net##*/} 2>/dev/null | head -n 1)" = "driver: ntb_netdev" ] || continue
        ip addr replace ADDRESS dev ${net##*/} && ip link set ${net##*/} up || exit 1
        [ "$(cat $net/carrier)" = 1 ] && exit 0
    done
    sleep 0.1
done
exit 1
"""


def probe(machine: Vm, model: str) -> None:
    """Load the drivers of engine and bridge; returns when the bridge is registered.

    Their modules load whether or not their probes succeed, and a client that finds no bridge says
    "No such device" (ntb_transport_register_client_dev). Raises `LabError` with what the kernel
    said.
    """
    driver = BY_NAME[model].kernel_driver
    machine.run(
        f"modprobe ioatdma || exit; {_ON_FIRST_CPU.replace('MODULE', driver)}", timeout=_SECONDS
    )
    if machine.run("ls /sys/bus/ntb/devices | grep -q .", check=False).status:
        raise LabError(
            f"guest {machine.name}: {driver} has registered no bridge",
            "read dmesg in both guests",
            machine.run("dmesg | tail -n 30", check=False).text,
        )


def settle(machine: Vm) -> None:
    """Wait until the driver has digested its peer's probe; to be called when both have probed.

    A Switchtec driver that starts tells its peer to take the link down, which takes that 0.1 s. A
    client that enables the link meanwhile loses it again, and ntb_transport's peer never notices
    (check_link_status_work, ntb_transport_link_work).
    """
    works = "grep -qs check_link_status_work /proc/[0-9]*/stack"
    machine.run(
        f"for look in 1 2 3 4 5; do while {works}; do sleep 0.1; done; sleep 0.1; done",
        timeout=_SECONDS,
    )


def load(machine: Vm, address: str) -> None:
    """Load ntb_transport and ntb_netdev over a settled driver; give the network device `address`.

    Returns when the device has a carrier, for which the peer must do the same. A transport that
    enables the link first hears that it is down, and the work for that, if it runs only after the
    peer's "up", cancels the work for "up": then it waits for ever (ntb_transport_link_cleanup). It
    is loaded again. Raises `LabError`.
    """
    for _ in range(_LOADS):
        machine.run(_TRANSPORT, timeout=_SECONDS)
        done = machine.run(_LINK.replace("ADDRESS", address), timeout=_SECONDS, check=False)
        if not done.status:
            return
        machine.run("rmmod ntb_netdev && rmmod ntb_transport", timeout=_SECONDS)
    raise LabError(
        f"guest {machine.name}: the NTB link does not come up",
        "read dmesg in both guests",
        machine.run("dmesg | tail -n 30", check=False).text,
    )
