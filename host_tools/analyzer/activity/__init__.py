"""One model of the bus for all views: what happened, each event of a log in exactly one of them."""

from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.assembler import (
    ActivityAssembler,
    activities,
    in_order,
)

__all__ = ["Activity", "ActivityAssembler", "ActivityKind", "activities", "in_order"]
