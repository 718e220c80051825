"""Errors that a user can mend."""


class UserError(Exception):
    """Something the user asked for cannot be done. The message says what to do; the program exits with 2."""
