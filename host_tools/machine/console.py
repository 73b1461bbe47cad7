"""A guest's serial console, and its transcript; any failure of the guest ends a wait."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

import pexpect
from pexpect import fdpexpect

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import CommandFailed, LabError
from bluebridge.host_tools.processes import Alarm
from bluebridge.printable import printable_lines

FAILURES: tuple[tuple[str, str], ...] = (
    (r"Kernel panic - not syncing[^\r\n]*", "the guest's kernel panicked"),
    (r"\bOops: [^\r\n]*", "the guest's kernel had an Oops"),
    (r"(?:kernel )?BUG: [^\r\n]*|kernel BUG at [^\r\n]*", "the guest's kernel hit a BUG"),
    (r"watchdog: BUG: soft lockup[^\r\n]*", "a CPU of the guest is locked up"),
    (r"INFO: task [^\r\n]* blocked for more than[^\r\n]*", "a task hangs in the guest"),
    (r"Out of memory: Killed process[^\r\n]*", "the guest ran out of memory"),
)
"""Failures of a guest that end every wait: the pattern on the console, and its meaning."""

_TAIL_BYTES = 8000
_LOOK_BYTES = 1 << 20
"""The bytes of a transcript that one look takes; a line that is longer is passed over."""

PROMPT = r"bluebridge# "

_SLICE = 0.2  # seconds between two looks at the alarms


_LOOKS, _PAUSE = 10, 0.15
"""The most looks at a report that is being written, and the seconds between two of them."""


class Transcript:
    """The file to which QEMU writes the console, watched for a failing kernel."""

    def __init__(self, guest: str, path: Path) -> None:
        self.guest = guest
        self.path = path
        self._position = 0
        self._found: LabError | None = None

    def skip(self) -> None:
        """Ignore what has been written up to now, since the guest is started anew."""
        self._position = self.path.stat().st_size if self.path.exists() else 0
        self._found = None

    def trouble(self) -> LabError | None:
        """Return the first failure since the start of the guest; None if there is none."""
        if self._found is None and self.path.exists():
            with self.path.open("rb") as stream:
                stream.seek(self._position)
                new = stream.read(_LOOK_BYTES)
            # Stop before an unfinished line, so that a pattern cut in two is seen next time.
            whole = new[: new.rfind(b"\n") + 1] or new[: len(new) // _LOOK_BYTES * _LOOK_BYTES]
            self._position += len(whole)
            self._found = self._judge(whole.decode(errors="replace"))
            if self._found is not None:
                self._found.transcript = self._whole_report()
                self._found.aloud = True
        return self._found

    def _judge(self, text: str) -> LabError | None:
        for pattern, meaning in FAILURES:
            if (match := re.search(pattern, text)) is not None:
                return LabError(
                    f"guest {self.guest}: {meaning} ({match.group(0).strip()})", f"read {self.path}"
                )
        return None

    def _whole_report(self) -> str:
        """Return the end of the transcript once the kernel has written the stack, too."""
        size = -1
        for _ in range(_LOOKS):
            if size == (size := self.path.stat().st_size):
                break
            time.sleep(_PAUSE)
        return self.tail()

    def tail(self) -> str:
        """Return the last part of the transcript as text."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return stream.read(_TAIL_BYTES).decode(errors="replace")


def last_report(path: Path) -> str:
    """Return what a guest that failed wrote on its console from its first failure on.

    That is the stack of a panic, for example; at most the end of the transcript at `path`.
    """
    text = Transcript("", path).tail()
    found = [match.start() for pattern, _ in FAILURES if (match := re.search(pattern, text))]
    return text[text.rfind("\n", 0, min(found)) + 1 :] if found else ""


class Console:
    """The console of one guest over a unix socket.

    Every wait ends at its pattern for success, and raises `LabError` at one of `FAILURES`, at the
    end of QEMU, at an alarm, and at a time limit.
    """

    def __init__(self, name: str, connection: socket.socket, transcript: Path) -> None:
        """Use a connected console socket; `transcript` is QEMU's file, which messages name."""
        self.name = name
        self.transcript = transcript
        self.alarms: list[Alarm] = []
        self.connection = connection
        self._stream = fdpexpect.fdspawn(  # SocketSpawn does not decode
            connection, encoding="utf-8", codec_errors="replace", timeout=None
        )
        self._stream.delaybeforesend = None
        self._serial = 0
        self._running: tuple[str, str] | None = None
        self._seen = ""

    def expect(self, *patterns: str, timeout: float) -> re.Match[str]:
        """Wait for the first of `patterns`; return its match.

        Raises `LabError` after `timeout` seconds and when the guest fails.
        """
        wanted = self._stream.compile_pattern_list(
            [*patterns, *(pattern for pattern, _ in FAILURES), pexpect.EOF, pexpect.TIMEOUT]
        )
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                index = self._stream.expect_list(wanted, timeout=max(0.0, min(_SLICE, left)))
            except OSError:  # QEMU died with unread input: no end of file but a reset
                raise self._lost() from None
            if index < len(patterns):
                match = self._stream.match
                assert isinstance(match, re.Match)
                return match
            self._raise_failure(index - len(patterns))
            if (trouble := processes.first(self.alarms)) is not None:
                raise trouble
            if left <= 0:
                raise self._error(f"no sign of {patterns[0]!r} within {timeout:.0f} s")

    def _raise_failure(self, index: int) -> None:
        """Raise for failure pattern `index` or for EOF; return for a mere time-out."""
        if index < len(FAILURES):
            detail = str(self._stream.after).strip()
            raise self._error(f"{FAILURES[index][1]} ({detail})", self._tail_after_failure())
        if index == len(FAILURES):
            raise self._lost()

    def _lost(self) -> LabError:
        return processes.wait_for_cause(self.alarms) or self._error("QEMU ended")

    def _tail_after_failure(self) -> str:
        """Return the kernel's output after the first line of a failure: its registers and stack."""
        text = f"{self._stream.before}{self._stream.after}"
        self._stream.expect_list(
            self._stream.compile_pattern_list(
                [r"---\[ end [^\r\n]*", pexpect.EOF, pexpect.TIMEOUT]
            ),
            timeout=3,
        )
        return f"{text}{self._stream.before}"

    def _error(self, what: str, text: str | None = None) -> LabError:
        seen = self._stream.before if text is None else text
        return LabError(
            f"guest {self.name}: {what}", f"read {self.transcript}", str(seen or "")[-4000:]
        )

    def wake(self) -> None:
        """Have the shell show its prompt, then switch the echo off.

        Start background jobs in a subshell, `(job &)`: the shell reports the end of its own ones,
        and it must keep its job control, or Ctrl-C would reach the shell as well as the command.
        """
        self._type("\n")
        self.expect(PROMPT, timeout=60)
        self.run("stty -echo columns 1000 2>/dev/null; true", timeout=60)

    def begin(self, command: str) -> None:
        """Start a shell command of one line, one at a time; `finish` waits for its end."""
        if self._running is not None:
            raise RuntimeError(f"`{self._running[0]}` is still running in guest {self.name}")
        if "\n" in command:
            raise ValueError("a console command is one line")
        self._serial += 1
        mark = f"{self._serial:04d}"
        # The marks are split in what is typed, so that an echoed command line never matches them.
        self._type(f"printf '%s%s\\n' @BEG 'IN{mark}@'; {command}\n")
        self._running = (command, mark)
        self._seen = ""
        self._type_end()

    def finish(self, timeout: float, progress: str | None = None) -> tuple[int, str]:
        """Wait for the command of `begin`; return its exit status and its output.

        With `progress`, returns (-1, "") as soon as that pattern appears in its output instead.
        Raises `LabError`.
        """
        if self._running is None:
            raise RuntimeError("no command is running")
        mark = self._running[1]
        patterns = [rf"@END{mark}:(\d+)@"] + ([progress] if progress else [])
        match = self.expect(*patterns, timeout=timeout)
        self._seen += str(self._stream.before)
        if match.re.pattern != patterns[0]:
            self._seen += match.group(0)
            return -1, ""
        self._running = None
        _, _, output = self._seen.rpartition(f"@BEGIN{mark}@")
        # A terminal that still echoes shows the typed-ahead line somewhere within the output.
        return int(match.group(1)), _plain(output.replace(self._end_line(mark), ""))

    def run(self, command: str, timeout: float = 60.0, check: bool = True) -> str:
        """Run one shell line to its end and return its output.

        Raises `CommandFailed` with status and output when `check` and the status is not 0.
        """
        self.begin(command)
        status, output = self.finish(timeout)
        if check and status != 0:
            raise CommandFailed(self.name, command, status, output)
        return output

    def interrupt(self) -> None:
        """Press Ctrl-C in the guest; the terminal forgets typed-ahead input, so type it again."""
        self._type("\x03")
        if self._running is not None:
            self._type_end()

    def _type(self, text: str) -> None:
        try:
            self._stream.send(text)
        except OSError:
            raise self._lost() from None

    def _type_end(self) -> None:
        """Type the line that reports the status of the command before it."""
        assert self._running is not None
        self._type(self._end_line(self._running[1]) + "\n")

    @staticmethod
    def _end_line(mark: str) -> str:
        return f"printf '\\n%s%s%d@\\n' @E 'ND{mark}:' $?"

    def close(self) -> None:
        """Close the connection, so that another client can attach to the console's socket."""
        self.connection.close()


def connect(name: str, path: Path, transcript: Path) -> Console:
    """Attach to the console socket of a running QEMU."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return Console(name, connection, transcript)


def _plain(text: str) -> str:
    """Return printable output without prompts and empty edges."""
    return printable_lines(text).replace(PROMPT, "").strip("\n")
