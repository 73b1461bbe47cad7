"""The table of views: a new view is a module beside this one with a `VIEW`, and a row here."""

from __future__ import annotations

from bluebridge.host_tools.analyzer.views import (
    activities,
    bridges,
    events,
    ntrdma,
    traffic,
    transactions,
    work_requests,
)

VIEWS = {
    module.VIEW.name: module.VIEW
    for module in (events, transactions, work_requests, activities, bridges, traffic, ntrdma)
}
"""The views by their names for `--view`; the first one is the default."""
DEFAULT = events.VIEW.name
TABLE = transactions.VIEW.name
