"""The model of the bus that all views share, in which each event belongs to one activity."""

from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.assembler import ActivityAssembler, activities

__all__ = ["Activity", "ActivityAssembler", "ActivityKind", "activities"]
