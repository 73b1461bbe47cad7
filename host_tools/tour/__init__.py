"""`bluebridge tour`: what an RDMA adapter does, step by step on live traffic."""
