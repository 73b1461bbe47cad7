"""The tutorial page of the tour: `python -m bluebridge.host_tools.tour.page > docs/tour.md`."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.host_tools.tour.steps import STEPS, Step

_INTRODUCTION = """# Tour: what an RDMA adapter does

    bluebridge tour

This starts two guests, does what is below, and prints for each step the lines of the bus log that
show it, with an address that plays them in a browser. It takes a few minutes, waits for Enter
between the steps, and ends the guests. Each step is checked: the command fails when the log does
not have what is said here. This page is made from the same data (`host_tools/tour/steps.py`). The
program that runs in the guests is `host_tools/tour/guest_program.py`.
"""
_END = """## Where to go from here

- [How an RDMA adapter works](how-it-works.md): the same in one text.
- [Send and receive between two guests](verbs.md): a program of your own.
- [Faults of links](faults.md): more that can go wrong.
- [A bridge between the guests](ntb.md): `bluebridge tour --bridge` shows it at the end.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION]
    parts += ["\n".join(_lines(number, step)) for number, step in enumerate(STEPS, start=1)]
    return "\n".join([*parts, _END])


def _lines(number: int, step: Step) -> Iterator[str]:
    yield f"## {number}. {step.title}\n"
    yield f"{step.text}\n"
    for line in step.commands:
        yield f"    bluebridge {line.format(a='a', b='b')}\n"
    yield "| guest | in the log | what it is |\n|---|---|---|"
    for sight in step.sights:
        words = " … ".join(sight.words)
        yield f"| {sight.guest} | `{sight.kind.name}`: `{words}` | {sight.says} |"
    yield f"\nThe program in guest b prints `RDMA_WRITE: {step.status}`."
    if step.never is not None:
        never = step.never
        yield f"The log has no `{never.kind.name}` of guest {never.guest} with `{never.words[0]}`."
    yield ""


if __name__ == "__main__":
    print(page(), end="")
