"""Sessions and paths of RTRS as trees of files: rtrs-client and rtrs-server below /sys/class.

Names, formats and error numbers are those of Linux 6.12: rtrs-clt-sysfs.c, rtrs-clt-stats.c,
rtrs-srv-sysfs.c and rtrs-srv-stats.c. docs/rtrs-files.md lists where the document of 2019 says
otherwise.
"""
