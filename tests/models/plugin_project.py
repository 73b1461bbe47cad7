"""A project of a user's own, far from this repository, and pytest runs in it with the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_SECONDS = 480


class Project:
    """A folder with a user's tests, and pytest runs in it."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.folder = folder
        self.runtime = runtime
        (folder / "pytest.ini").write_text("[pytest]\nbluebridge_scratch = kept\n")

    def write(self, name: str, text: str) -> None:
        """One file of it."""
        (self.folder / name).write_text(text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start pytest with the plugin of this checkout; run folders are made in `runtime`."""
        report = f"--junitxml={self.folder / 'report.xml'}"
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", report, *words],
            cwd=self.folder,
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.runtime), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> str:
        """Run pytest to its end; returns what it printed."""
        output, _ = self.start(*words).communicate(timeout=_SECONDS)
        return output

    def outcomes(self) -> dict[str, str]:
        """Name of each test and `passed`, `failure` or `error`, of the last run."""
        cases = ElementTree.parse(self.folder / "report.xml").iter("testcase")
        return {case.attrib["name"]: _outcome(case) for case in cases}

    def properties(self, test: str) -> dict[str, str]:
        """Return what the report says of a test besides its outcome."""
        cases = ElementTree.parse(self.folder / "report.xml").iter("testcase")
        (case,) = (case for case in cases if case.attrib["name"] == test)
        return {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}

    def text(self, test: str) -> str:
        """Return what the report says of the failure of a test."""
        cases = ElementTree.parse(self.folder / "report.xml").iter("testcase")
        return "".join(
            part.text or "" for case in cases if case.attrib["name"] == test
            for part in case if part.tag == "failure"
        )  # fmt: skip

    def kept(self) -> dict[str, Path]:
        """Scratch folders that are there, by name."""
        return {path.name: path for path in self.folder.glob("kept/*/*")}


def _outcome(case: ElementTree.Element) -> str:
    return next((part.tag for part in case if part.tag != "properties"), "passed")
