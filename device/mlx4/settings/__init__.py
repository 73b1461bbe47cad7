"""The settings of an adapter: its configuration, its capabilities, parameters of INIT_HCA."""
