"""The host's side of the agent: commands and files in a guest, over a virtio-serial port.

    with Agent.connect("a", sockets) as agent:
        agent.run("uname -r", timeout=10, check=True).stdout
        agent.put(Path("x.ko"), "/tmp/")
        agent.get("/proc/interrupts", Path("interrupts"))

Failures are `AgentError`, which is a `LabError`: one line for the user.
"""

from bluebridge.host_tools.agent.client import Agent, Identity
from bluebridge.host_tools.agent.errors import (
    AgentBusy,
    AgentCommandFailed,
    AgentError,
    AgentForgot,
    AgentLost,
    AgentRefused,
    AgentSilent,
    CommandTimedOut,
)
from bluebridge.host_tools.agent.guest_command import Command, Completed

__all__ = [
    "Agent",
    "AgentBusy",
    "AgentCommandFailed",
    "AgentError",
    "AgentForgot",
    "AgentLost",
    "AgentRefused",
    "AgentSilent",
    "Command",
    "CommandTimedOut",
    "Completed",
    "Identity",
]
