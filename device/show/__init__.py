"""The present state of a server's functions as rows of JSON; reading it changes nothing."""
