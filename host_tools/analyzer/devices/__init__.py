"""The models of devices that a log can hold: `registry` lists them, a module of each has tables."""
