"""The register reference as the page serves it: a row of it for each field, with a name to link."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import cache

from bluebridge.device.layout import reference

_CELLS = re.compile(r"(?<!\\)\|")


@cache
def page(subject: str) -> str | None:
    """Return the page of a subject; None where there is none of this name."""
    text = reference.pages().get(subject)
    if text is None:
        return None
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" '
        f'content="light dark"><title>{html.escape(subject)}: register reference</title>'
        '<link rel="stylesheet" href="../static/page.css"></head><body class="reference"><main>'
        f"<h1>{html.escape(subject)}</h1>\n" + "\n".join(_lines(text)) + "\n</main></body></html>\n"
    )


def _lines(text: str) -> Iterator[str]:
    """Yield the HTML of headings, paragraphs and tables; rows of fields are called TABLE.field."""
    table, names = "", 0
    inside = False
    for line in text.splitlines():
        row = [html.escape(cell.strip().replace("\\|", "|")) for cell in _CELLS.split(line)[1:-1]]
        if inside and not row:
            inside = False
            yield "</table>"
        if line.startswith("#"):
            level, _, title = line.partition(" ")
            table = title.partition(":")[0]
            yield f"<h{len(level)}>{html.escape(title)}</h{len(level)}>"
        elif row and not inside:
            inside, names = True, row.index("name") if "name" in row else 0
            yield "<table><tr>" + "".join(f"<th>{cell}</th>" for cell in row) + "</tr>"
        elif row and not line.startswith("|---"):
            name = html.escape(f"{table}.{row[names]}")
            yield f'<tr id="{name}">' + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
        elif line and not row:
            yield f"<p>{html.escape(line)}</p>"
    if inside:
        yield "</table>"
