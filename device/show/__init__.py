"""What the functions of a server hold now, as rows of JSON that nothing is changed by."""
