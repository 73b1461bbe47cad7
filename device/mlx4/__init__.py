"""The emulated ConnectX-3: `device.device.Hca` is the function behind the PCI endpoint.

A room imports only from those before it: `settings`, `memory`, `rings`, `ports`, `pairs`,
`connected`, `datagrams`, `ethernet`, `pair_factory`, `queue_pairs`, `registers`, `adapter`,
`commands`, `device`.
`adapter.Adapter` wires the parts; `commands` carry firmware commands out on them; doorbells come
in through `registers` and go to `queue_pairs` and `rings`.
"""
