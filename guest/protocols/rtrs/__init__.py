"""RTRS: a reliable transport for block I/O over RDMA, with several paths between two machines."""
