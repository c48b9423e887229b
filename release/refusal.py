"""Why a release does not go on."""


class Refused(Exception):
    """What is wrong and what to do, for the person who started the release."""
