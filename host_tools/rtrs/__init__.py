"""`bluebridge rtrs`: a block device over RTRS between two guests, while paths die.

`options` is its command line; `demo` and `matrix` are its actions. `sides` says what a side is, who
speaks RTRS in a guest: `kernel_side` or `python_side`; `tree` reads the files that both have.
`session` is a mapped device under fio, `cuts` cuts its paths, `fio` reads what fio found.
"""
