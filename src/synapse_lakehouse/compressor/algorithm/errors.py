"""What can be wrong with settings and groups."""


class CompressorError(ValueError):
    """Compressing cannot be done as it was asked for; the message says why."""


class BadGroups(ValueError):
    """State groups that cannot be what Synapse stored; the message names one and says what is wrong with it."""
