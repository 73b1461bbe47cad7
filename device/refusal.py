"""The reasons why a part of an adapter refuses a request; each face has its own numbers."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """The reason why a request is refused."""

    BAD_PARAMETER = "bad parameter"
    BAD_SIZE = "bad size"
    BAD_INDEX = "no such object"
    BAD_STATE = "object in another state"
    BAD_PAIR_STATE = "queue pair in another state"
    BUSY = "busy"
    LIMIT = "limit exceeded"
    BOUND = "region with windows"
    UNSUPPORTED = "not in this mode"
    UNANSWERED = "no agent answers"


class Refusal(Exception):
    """A request is refused and has changed nothing; `text` goes into the log."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(f"{reason.name}: {text}")
        self.reason = reason
        self.text = text
