"""The commands of `bluebridge`, a module for each; `host_tools.arguments` lists them.

Each has `add_arguments(parser)`, which `up` has in `up_options`, and `main(options) -> int`, which
returns the exit status or raises `LabError`. A module is imported only when its command is given: a
short command must not wait for the imports of others.
"""
