"""Why a release does not go on.

Takes: nothing. Gives: the exception. May touch: nothing.
"""


class Refused(Exception):
    """What is wrong and what to do, for the person who started the release."""
