"""The measurements of the study "Optimierung eines Linux I/O Treibers für System z", 2012.

Times are microseconds of `rdma_lat`, half a round trip; sizes are bytes of payload.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StudyRow:
    """Times for payloads from `low` to `high` bytes: with doorbells, and through BlueFlame.

    `gain` is the saved part of the time as the study gives it, computed from unrounded times.
    """

    low: int
    high: int
    doorbell: float
    blueflame: float
    gain: float
    operations: str = ""

    @property
    def more(self) -> float:
        """Microseconds that sends through BlueFlame take longer than those with doorbells."""
        return self.blueflame - self.doorbell


@dataclass(frozen=True, slots=True)
class StudyTable:
    """A table of the study.

    `first_attempt` marks the attempt in which entries went to the wrong page.
    """

    name: str
    title: str
    profile: str
    rows: tuple[StudyRow, ...]
    first_attempt: bool = False


TABLE_31 = StudyTable(
    "3.1",
    "Table 3.1: System x with and without BlueFlame",
    "system-x",
    (StudyRow(1, 192, 2.06, 1.51, 0.2678), StudyRow(193, 1024, 2.92, 2.92, 0.0)),
)
TABLE_41 = StudyTable(
    "4.1",
    "Table 4.1: System z with and without BlueFlame",
    "system-z",
    (
        StudyRow(1, 28, 4.6, 2.6, 0.43, "64"),
        StudyRow(29, 88, 4.7, 2.9, 0.38, "128"),
        StudyRow(89, 148, 4.9, 3.6, 0.26, "64+128"),
        StudyRow(149, 208, 5.1, 4.0, 0.21, "128+128"),
    ),
)
FIGURE_43 = StudyTable(
    "4.3",
    "Figure 4.3: System z, first attempt; the page's index was not added",
    "system-z",
    # Doorbell times of table 4.1, and 0.5 and 0.7 us more as in section 4.3.1.
    (StudyRow(1, 28, 4.6, 5.1, -0.5 / 4.6, "64"), StudyRow(29, 88, 4.7, 5.4, -0.7 / 4.7, "128")),
    first_attempt=True,
)
TABLES = {table.name: table for table in (TABLE_31, TABLE_41, FIGURE_43)}

READS_45 = ((16, 12.356 - 11.684), (496, 13.468 - 12.836))
"""The two reads of an entry in figure 4.5: bytes, and microseconds to the first completion."""
