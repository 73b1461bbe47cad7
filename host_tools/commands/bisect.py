"""`bluebridge bisect`: the revision from which a command fails, one build and one run a step."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bluebridge.host_tools.commands.kernel import build as build_kernel
from bluebridge.host_tools.commands.kmod import image_errors
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.lab.software import KERNEL_VARIABLE, MODULES_VARIABLE, OVERLAY_VARIABLE
from bluebridge.images import kernel_build, kmod
from bluebridge.images.cache import default_root, key_of
from bluebridge.images.report import ImageError

BUILT_VARIABLE = "BLUEBRIDGE_BUILT"
"""The folder with what the present revision was built to."""
SKIP = 125
"""The status by which a command says that a revision cannot be tested, as for `git bisect run`."""
_SIGNALLED = 128
_FOUND = re.compile(r"^([0-9a-f]{40}) is the first (?:bad|new) commit", re.MULTILINE)
_NOT_FOUND = "There are only 'skip'ped commits left to test"
_DESCRIPTION = """\
Find the first revision of SOURCE with which COMMAND fails. Each step checks a revision out beside
SOURCE, whose own checkout does not change, builds it and runs COMMAND in the current folder:

  a kernel's tree       is built as `kernel build` does; guests that COMMAND starts have that kernel
  a folder of kmod      is built as `kmod` does; the modules are in $BLUEBRIDGE_BUILT
  anything else         is built by --build LINE, which installs into $BLUEBRIDGE_BUILT; those files
                        lie over the root of guests that COMMAND starts

Status 0 of COMMAND is good, 125 and a failed build skip the revision, others are bad.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command, apart from what follows `--`."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "bluebridge bisect [-h] [--build LINE] SOURCE GOOD BAD -- COMMAND ..."
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a folder in a git repository")
    parser.add_argument("good", metavar="GOOD", help="a revision with which COMMAND succeeds")
    parser.add_argument("bad", metavar="BAD", help="a later one with which it fails")
    parser.add_argument("--build", default="", metavar="LINE", help="a line of the shell")


def main(options: argparse.Namespace) -> int:
    """Bisect, with a line for each step; return 0 when the revision was found, 1 otherwise.

    Raises `LabError`.
    """
    if not options.words:
        raise UsageError("there is no command to tell good from bad", "write it after --")
    top = Path(_git(options.source, "rev-parse", "--show-toplevel").strip())
    for revision in (options.good, options.bad):
        _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    with image_errors(), _checkout(top, options.bad) as tree:
        inside = tree / options.source.resolve().relative_to(top)
        steps = _Steps(inside, options.build, options.words)
        steps.check()
        told = _git(tree, "bisect", "start", options.bad, options.good)
        begin, count = time.monotonic(), 0
        while not _FOUND.search(told) and _NOT_FOUND not in told:
            count += 1
            told = _git(tree, "bisect", steps.judge(count), accept=(0, 2))
        seconds = time.monotonic() - begin
        told_steps = f"{count} steps, {seconds / max(count, 1):.0f} s each"
        if (match := _FOUND.search(told)) is None:
            print(f"none of the revisions left could be tested ({told_steps})")
            return 1
        print(f"the first bad revision ({told_steps}):")
        print(_git(tree, "log", "-1", "--stat", match[1]).rstrip())
    return 0


@dataclass(frozen=True)
class _Steps:
    """Builds and runs the revision that is checked out."""

    source: Path
    line: str
    command: list[str]

    def check(self) -> None:
        """Raise `UsageError` for a source that nobody here knows how to build."""
        if not (self.line or self._is_kernel() or self._is_module()):
            what = f"{self.source.name} is neither a kernel's tree nor a folder for kmod"
            raise UsageError(what, "give --build LINE, which installs into $BLUEBRIDGE_BUILT")

    def judge(self, number: int) -> str:
        """Return `good`, `bad` or `skip` for the revision; print a line. Raises `LabError`."""
        begin = time.monotonic()
        name = _git(self.source, "log", "-1", "--format=%h %s").strip()
        verdict, why = self._verdict()
        more = f": {why}" if why else ""
        seconds = time.monotonic() - begin
        print(f"step {number}: {name}: {verdict} after {seconds:.0f} s{more}", flush=True)
        return verdict

    def _verdict(self) -> tuple[str, str]:
        with tempfile.TemporaryDirectory(prefix="bluebridge-bisect-") as folder:
            try:
                environment = self._built(Path(folder))
            except ImageError as error:
                return "skip", error.what
            environment = {**os.environ, **environment}
            status = subprocess.run(self.command, env=environment, check=False).returncode
        if status == SKIP:
            return "skip", ""
        if status < 0 or status >= _SIGNALLED:
            raise LabError(f"the command was stopped (status {status})", "start anew")
        return ("bad", f"status {status}") if status else ("good", "")

    def _built(self, folder: Path) -> dict[str, str]:
        """Build the revision; return the environment of the command. Raises `ImageError`."""
        built = {BUILT_VARIABLE: str(folder)}
        if self.line:
            done = subprocess.run(
                ["sh", "-c", self.line],
                cwd=self.source,
                env={**os.environ, **built},
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if done.returncode:
                lines = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
                raise ImageError(f"--build ended with status {done.returncode}: {lines[-1]}", "")
            return {**built, OVERLAY_VARIABLE: str(folder)}
        if self._is_kernel():
            kernel = build_kernel(str(self.source), debug=False)
            image = {KERNEL_VARIABLE: str(kernel / "bzImage"), MODULES_VARIABLE: str(kernel)}
            return {BUILT_VARIABLE: str(kernel), **image}
        kmod.build(self.source, folder)
        return built

    def _is_kernel(self) -> bool:
        return kernel_build.is_source(self.source)

    def _is_module(self) -> bool:
        return any((self.source / name).is_file() for name in ("Kbuild", "Makefile"))


@contextlib.contextmanager
def _checkout(top: Path, revision: str) -> Iterator[Path]:
    """Yield a checkout of a repository beside its own, at a path that is the same each time."""
    tree = default_root() / f"bisect-{key_of(str(top))}"
    _remove(top, tree)
    _git(top, "worktree", "add", "--quiet", "--detach", str(tree), revision)
    try:
        yield tree
    finally:
        _remove(top, tree)


def _remove(top: Path, tree: Path) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    _git(top, "worktree", "prune")


def _git(folder: Path, *words: str, accept: tuple[int, ...] = (0,)) -> str:
    """Return what git prints. Raises `LabError` with its last line when it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", folder, *words],
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise LabError("git is not on this machine", "install git") from None
    if done.returncode not in accept:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["no such revision"]
        raise LabError(f"git {words[0]} {words[-1]}: {lines[-1]}", f"look at {folder}")
    return done.stdout
