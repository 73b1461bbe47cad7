"""Names, ids and MAC addresses of a guest: chosen anew for each, also from one snapshot."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

_ENTROPY_BYTES = 64
_LOCAL = b"\x02"  # first byte of a MAC address that no manufacturer owns


@dataclass(frozen=True)
class Identity:
    """Host name, machine-id, boot id and MAC prefix; random unless given."""

    hostname: str
    machine_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The machine-id: 32 hexadecimal digits."""
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """A UUID, which the guest's /proc/sys/kernel/random/boot_id shows from then on."""
    mac_prefix: bytes = field(default_factory=lambda: _LOCAL + os.urandom(4))
    """Five bytes; the guest's virtio NICs add their number as the sixth."""

    def request(self) -> dict[str, Any]:
        """Return the message to the agent: the identity, fresh randomness, and the time of now."""
        return {
            "op": "personalise",
            "hostname": self.hostname,
            "machine_id": self.machine_id,
            "boot_id": self.boot_id,
            "mac_prefix": self.mac_prefix.hex(),
            "entropy": os.urandom(_ENTROPY_BYTES).hex(),
            "clock": time.time(),
        }
