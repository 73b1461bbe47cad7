"""The colours of the page in both themes: text is readable by WCAG 2 AA."""

from __future__ import annotations

import re

import pytest

from bluebridge.host_tools.web.app import STATIC

THEMES = re.findall(r":root \{(.*?)\}", (STATIC / "page.css").read_text(), re.DOTALL)
TEXT, LARGE = 4.5, 3.0


def _colours(theme: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme))


def _brightness(colour: str) -> float:
    """The relative luminance of WCAG."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_brightness(one), _brightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark"])
def test_text_is_readable_on_every_ground(theme: str) -> None:
    colours = _colours(theme)
    grounds = [colours[name] for name in ("back", "panel", "chosen", "box")]
    for name in ("text", "dim", "bad", "a", "b"):
        low = min(_contrast(colours[name], ground) for ground in grounds)
        assert low >= TEXT, (name, low)
    assert min(_contrast(colours["lit"], ground) for ground in grounds) >= LARGE


def test_there_are_two_themes() -> None:
    assert len(THEMES) == 2
    assert _contrast("#000000", "#ffffff") == pytest.approx(21)
