"""`bluebridge ntb demo`: shows a bridge at work on a pair of its own.

`ntb_demo_options` has the options of the command line, `ntb_demo_command` the sequence, `steps`
each step with the kernel's drivers, `packet` one packet in the bus log.
"""
