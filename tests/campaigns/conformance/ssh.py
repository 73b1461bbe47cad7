"""Guest b runs commands in guest a by ssh, as root and without a password."""

from __future__ import annotations

from tests.campaigns.conformance.session import Session

_KEY = "/root/.ssh/id_ed25519"
# The host's key and the user's are one; packages that are laid over a guest have no files in /etc.
_SERVE = (
    "mkdir -p /run/sshd /root/.ssh && { grep -q ^sshd: /etc/passwd || "
    "echo sshd:x:100:65534::/run/sshd:/usr/sbin/nologin >> /etc/passwd; } && "
    f"ssh-keygen -q -t ed25519 -N '' -f {_KEY} && cp {_KEY}.pub /root/.ssh/authorized_keys && "
    f"/usr/sbin/sshd -f none -h {_KEY} -o UsePAM=no -o StrictModes=no -o PermitRootLogin=yes "
    f"-o 'Subsystem=sftp internal-sftp' && cat {_KEY}"
)
# One connection for all commands, as the README of the tests advises: a new one takes a second.
_CONNECT = (
    f"chmod 700 /root/.ssh; chmod 600 {_KEY}; "
    "printf '%s\\n' 'Host *' 'StrictHostKeyChecking no' 'LogLevel ERROR' 'ControlMaster auto' "
    "'ControlPath /run/ssh-%C' 'ControlPersist yes' > /root/.ssh/config; ssh {server} true"
)


def connect(session: Session) -> bool:
    """Open the way, once in a session; returns whether it is new. Raises `LabError`."""
    a, b = session.pair.machines
    if b.run(f"[ -e {_KEY} ]", check=False).status == 0:
        return False
    key = a.run(_SERVE, timeout=60).text.strip() + "\n"
    b.run("mkdir -p /root/.ssh")
    b.agent.put(key.encode(), _KEY)
    b.run(session.words.fill(_CONNECT, "b"), timeout=60)
    return True
