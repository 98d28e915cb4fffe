"""Where the marks of a SQLite database are: a file beside it, mirrored in its rows."""
