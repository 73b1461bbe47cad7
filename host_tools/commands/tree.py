"""The files below a folder, on the host or in a guest."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from bluebridge.host_tools.agent import Agent, AgentCommandFailed
from bluebridge.host_tools.errors import LabError


@dataclass
class Tree:
    """The entries below a folder, as relative paths; a folder comes before its contents."""

    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """The links, devices and sockets, which are not copied."""


def host_tree(top: str) -> Tree:
    """Return the files below `top` on the host. Raises `OSError`."""
    tree = Tree()
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(os.path.join(top, folder)) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                name = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    tree.folders.append(name)
                    pending.append(name)
                elif entry.is_file(follow_symlinks=False):
                    tree.files.append(name)
                else:
                    tree.others.append(name)
    return tree


def guest_tree(agent: Agent, top: str) -> Tree:
    """Return the files below `top` in a guest. Raises `LabError`."""
    return Tree(
        _find(agent, top, ["-type", "d"]),
        _find(agent, top, ["-type", "f"]),
        _find(agent, top, ["!", "-type", "d", "!", "-type", "f"]),
    )


def _find(agent: Agent, top: str, test: list[str]) -> list[str]:
    try:
        # Relative names, so that ours are all the guest can put before them.
        found = agent.run(["find", ".", "-mindepth", "1", *test, "-print0"], cwd=top, check=True)
    except AgentCommandFailed as error:
        raise LabError(f"guest {agent.guest}: {top}: {error.output.strip()}") from None
    names = [os.fsdecode(name) for name in found.stdout.split(b"\0") if name]
    return [_checked(agent.guest, name) for name in names]


def _checked(guest: str, name: str) -> str:
    """Return a file name of a guest without its leading `./`.

    Raises `LabError` for a name that leads out of the folder that is copied: a guest is not
    trusted.
    """
    start, *parts = name.split("/")
    if start != "." or not parts or any(part in ("", ".", "..") for part in parts):
        raise LabError(f"guest {guest}: its file name {name!r} is not to be trusted")
    return "/".join(parts)
