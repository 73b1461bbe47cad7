"""Pictures of the page: `python -m tests.unit.web.pictures LOG` writes them into docs/pictures.

LOG is the folder of a run, such as that of `bluebridge tour`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.models.house import HOME
from tests.unit.web.browser import browser
from tests.unit.web.web_site import served

SIZES = {"": (1500, 950), "-tablet": (820, 1180), "-phone": (390, 844)}
FOLDER = HOME / "docs" / "pictures"

_COLOURS = 128


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for the browser, which may still write to it when it ends."""
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


def take(log: Path, folder: Path) -> list[Path]:
    """Write a picture of each size in both themes; return their paths."""
    made = []
    title = f"log {log.resolve().name}"
    with _scratch() as scratch, browser(Path(scratch)) as page, served(log, title=title) as address:
        for theme in ("", "-dark"):
            if theme:
                page.dark()
            for name, (width, height) in SIZES.items():
                page.size(width, height)
                page.open("about:blank")
                page.open(address)
                page.wait("document.querySelectorAll('#fields tr').length > 0")
                page.click("#on")
                page.wait("document.querySelectorAll('#fields tr').length > 3")
                page.wait("document.querySelectorAll('#rings tr').length > 3")
                made.append(folder / f"web{name}{theme}.png")
                page.picture(made[-1])
                small = (
                    Image.open(made[-1])
                    .convert("RGB")
                    .quantize(_COLOURS, Image.Quantize.FASTOCTREE)
                )
                small.save(made[-1], optimize=True)
    return made


if __name__ == "__main__":
    for each in take(Path(sys.argv[1]), FOLDER):
        print(each)
