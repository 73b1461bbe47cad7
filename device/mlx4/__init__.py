"""The emulated ConnectX-3: `device.Hca` is the function behind the PCI endpoint.

It is a face of the engines in `device/rdma` and `device/ethernet`: `rings` read and write its
entries, `pairs` and `ports` its contexts, `words` has its numbers for what the engines say.
`adapter.Adapter` wires the parts; `commands` carry firmware commands out on them; doorbells come
in through `registers` and go to `rings`.
"""
