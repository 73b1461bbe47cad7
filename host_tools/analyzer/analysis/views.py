"""The table of views: a new view is a module with a `VIEW` and a row here."""

from __future__ import annotations

from bluebridge.host_tools.analyzer.activity import activity_view, bridge_view, traffic_view
from bluebridge.host_tools.analyzer.analysis import (
    event_view,
    ntrdma_view,
    transaction_table,
    work_requests,
)

VIEWS = {
    view.name: view
    for view in (
        event_view.VIEW,
        transaction_table.VIEW,
        work_requests.VIEW,
        activity_view.VIEW,
        bridge_view.VIEW,
        traffic_view.VIEW,
        ntrdma_view.VIEW,
    )
}
"""By the names of `--view`; the first is the default."""
DEFAULT = event_view.VIEW.name
