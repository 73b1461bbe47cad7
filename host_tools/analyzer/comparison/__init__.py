"""Two logs compared: `bluebridge log --diff A B`."""
