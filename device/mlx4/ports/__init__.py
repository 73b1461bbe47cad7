"""Ports in the form that drivers read and write: paths, events, statistics, groups, cable."""
