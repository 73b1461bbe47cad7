"""Paths, events, statistics and groups of ports as drivers read and write them; the cable."""
