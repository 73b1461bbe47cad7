"""`bluebridge rtrs`: a block device over RTRS between two guests, while paths die.

`rtrs_command` is its command line; `demo` and `matrix` are its actions. `sides` are the kernel and
the guest's Python as client and server, with the files of their paths. `session` is a mapped device
under fio whose paths are cut, `fio` reads what fio found.
"""
