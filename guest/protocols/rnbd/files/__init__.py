"""Devices of RNBD as trees of files, in the manner of Linux 6.12.

Names, formats and error numbers are those of rnbd-clt-sysfs.c and rnbd-srv-sysfs.c.
"""
