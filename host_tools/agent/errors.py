"""The errors of a client of a guest's agent."""

from __future__ import annotations

from bluebridge.host_tools.errors import CommandFailed, LabError


class AgentError(LabError):
    """The agent of a guest could not do what it was asked for."""


class AgentLost(AgentError):
    """The connection ended: QEMU is gone, or the agent was started anew."""


class AgentForgot(AgentError):
    """The agent runs but does not know an operation, which may have begun; it can be repeated."""

    def __init__(self, guest: str, what: str) -> None:
        super().__init__(f"guest {guest}: its agent lost {what}, which may have begun", "try again")


class AgentSilent(AgentError):
    """The guest sends nothing: it hangs, it is paused, or it has no agent."""


class AgentBusy(AgentError):
    """Other processes of the host hold all ports of the guest."""


class AgentRefused(AgentError):
    """The agent answered with an error; `code` is an errno name such as ENOENT, or a word."""

    def __init__(self, guest: str, what: str, code: str, message: str) -> None:
        super().__init__(f"guest {guest}: {what}: {message}")
        self.code = code
        self.message = message


class CommandTimedOut(AgentError):
    """The command reached its time limit and was killed; the guest is fine."""

    def __init__(
        self, guest: str, command: str, limit: float, stdout: bytes, stderr: bytes
    ) -> None:
        text = (stdout + stderr).decode(errors="replace")
        super().__init__(
            f"guest {guest}: `{command}` was killed after {limit:g} s", transcript=text
        )
        self.stdout = stdout
        self.stderr = stderr


class AgentCommandFailed(CommandFailed, AgentError):
    """A command ended with a status other than zero, or by a signal (128 + its number)."""

    def __init__(self, guest: str, command: str, status: int, stdout: bytes, stderr: bytes) -> None:
        # The last line names the cause, and a failing command puts it on standard error.
        text = (stdout + stderr).decode(errors="replace")
        super().__init__(guest, command, status, text)
        self.stdout = stdout
        self.stderr = stderr
