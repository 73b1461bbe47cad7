"""The agent: commands and files for the host, over a virtio-serial port.

`python3 -m bluebridge.guest.agent` runs in the guest; `host_tools.agent` is its client. `frames` is
the protocol of both sides, `served_port` one port and its session, `operation` the base of `run`
and `files`, `identity` gives two guests from one snapshot different names and random numbers.
"""

VERSION = "1.0"
"""Part of every HELLO and of the answer to `ping`."""
PROTOCOL = 2
"""Raised by every change that an older host would misunderstand."""
PORT = "org.bluebridge.agent"
"""Name of the first virtio-serial port; further ones are called `PORT.1`, `PORT.2` and so on."""
