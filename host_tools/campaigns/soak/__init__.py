"""Drivers loaded and unloaded, faults and traffic for an hour, at one device server.

`plan` draws what comes next, `drivers` and `traffic` do it, `session` and `kernel_log` listen to
the kernels and to the server, `rounds` keeps what was found, `report` and `page` say what came of
it.
"""
