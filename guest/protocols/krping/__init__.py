"""krping as a user-space program over the guest's own driver.

Options, states, messages and statistics are those of the kernel module by Steve Wise; see the
README it comes with. `python3 -m bluebridge.guest.protocols.krping COMMAND` runs one command,
`python3 -m bluebridge.guest.protocols.krping.control` puts a file in place that works like
/proc/krping.
"""
