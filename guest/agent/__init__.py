"""The agent: commands and files for the host, over a virtio-serial port.

`python3 -m bluebridge.guest.agent` runs in the guest; `host_tools.agent` is its client. `frames` is
what both sides speak, `link` one port and its session, `command` and `files` the work, `identity`
what makes two guests from one snapshot different.
"""

VERSION = "1.0"
"""Told in every greeting and by `ping`."""
PROTOCOL = 2
"""Raised by every change that an older host would misunderstand."""
PORT = "org.bluebridge.agent"
"""Name of the first virtio-serial port; further ones are called `PORT.1`, `PORT.2` and so on."""
