"""The timeline of a log for the Perfetto UI: tracks per function, flows, counters."""
