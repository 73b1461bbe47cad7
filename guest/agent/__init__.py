"""The agent: commands and files for the host, over a virtio-serial port.

`python3 -m bluebridge.guest.agent` runs in the guest; `host_tools.agent` is its client. `frames` is
the protocol of both sides, `served_port` one port with its session and the base of `run` and
`files`, `machine` gives two guests from one snapshot different names and random numbers.
"""

VERSION = "1.0"
"""The agent's version, part of every HELLO and of the answer to `ping`."""
PROTOCOL = 3
"""The protocol's version, raised by every change that an older host would misunderstand."""
PORT = "org.bluebridge.agent"
"""The name of the first virtio-serial port; further ones are `PORT.1`, `PORT.2` and so on."""
