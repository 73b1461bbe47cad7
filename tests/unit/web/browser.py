"""Headless Chromium as tests use it: a page, what its script says, keys, pictures.

Speaks the DevTools protocol over a pair of pipes (`--remote-debugging-pipe`): JSON objects, each
ended by a zero byte, into descriptor 3, out of descriptor 4.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = (
    "chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
    "--proxy-server=127.0.0.1:9", "--proxy-bypass-list=127.0.0.1",
)  # fmt: skip
"""The proxy does not exist, so that any use of a network but this machine fails."""
SECONDS = 40.0
_PLAIN_DESCRIPTORS = 10
KEYS = {
    "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, " ": 32, "Enter": 13, "Tab": 9, "+": 187,
}  # fmt: skip


class Browser:
    """One page of one browser."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders = orders
        self._answers = answers
        self._received = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        """The errors of the page's scripts."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        told = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = told["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.size(1500, 950)

    def size(self, width: int, height: int) -> None:
        """Size of the window."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def dark(self) -> None:
        """From now on the user wants dark pages."""
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def still(self) -> None:
        """From now on the user wants no motion."""
        features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def open(self, address: str) -> None:
        """Go to a page."""
        self._call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """The value of an expression in the page. Raises `AssertionError` when it throws."""
        told = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, script: str) -> Any:
        """The first true value of an expression; raises `AssertionError` after `SECONDS`."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):
                if value := self.run(script):
                    return value
            time.sleep(0.05)
        raise AssertionError(f"{script} did not come true: {self.run('document.body.innerText')}")

    def text(self, name: str) -> str:
        """The text of the element with that id."""
        return str(self.run(f"document.getElementById({name!r}).innerText"))

    def click(self, selector: str) -> None:
        """Click on the first element that matches."""
        found = f"document.querySelector({json.dumps(selector)})"
        # An element of SVG has no click().
        self.run(f"{found}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")

    def key(self, name: str) -> None:
        """Press a key of `KEYS`."""
        code = {"key": name, "windowsVirtualKeyCode": KEYS[name]}
        text = {"text": "\r" if name == "Enter" else name} if name in (" ", "+", "Enter") else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", **code)

    def drag(self, selector: str, right: int) -> None:
        """Drag the middle of the first element that matches, by so many pixels to the right."""
        box = self.run(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for kind, at in (("Pressed", x), ("Moved", x + right), ("Released", x + right)):
            self._call(
                "Input.dispatchMouseEvent",
                type=f"mouse{kind}", x=at, y=y, button="left", buttons=1, clickCount=1,
            )  # fmt: skip

    def scripts(self, *, on: bool) -> None:
        """From now on pages have scripts, or have none."""
        self._call("Emulation.setScriptExecutionDisabled", value=not on)

    def picture(self, path: Path) -> None:
        """Write what is seen as PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            told = self._next(end)
            if told.get("id") == self._number:
                assert "error" not in told, told
                found: dict[str, Any] = told["result"]
                return found
            if told.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(told["params"]["exceptionDetails"]))
            if told.get("method") == "Log.entryAdded":
                self.errors.append(str(told["params"]["entry"]["text"]))

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            left = max(0.0, end - time.monotonic())
            assert select.select([self._answers], [], [], left)[0], "the browser does not answer"
            data = os.read(self._answers, 1 << 20)
            assert data, "the browser has ended"
            self._received += data
        text, _, self._received = self._received.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser whose files are below `folder`."""
    theirs, orders = _pipe()
    answers, said = _pipe()
    command = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{said}', "sh", *CHROMIUM]
    process = subprocess.Popen(
        [*command, f"--user-data-dir={folder}"],
        pass_fds=(theirs, said), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    os.close(said)
    try:
        yield Browser(orders, answers)
    finally:
        os.close(orders)
        process.terminate()
        process.wait(10)
        os.close(answers)


def _pipe() -> tuple[int, int]:
    """Reading and writing end, both above the numbers that a shell can name."""
    found = []
    for end in os.pipe():
        found.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _PLAIN_DESCRIPTORS))
        os.close(end)
    return found[0], found[1]
