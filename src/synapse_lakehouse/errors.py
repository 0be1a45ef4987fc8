"""The base class of every exception of this product."""

from typing import ClassVar, Final

REPORT_PREFIX: Final = "error: "
"""Prefix of a Spark app's output line for a :class:`LakehouseError` that a retry cannot correct."""


PAUSE_PREFIX: Final = "retried later: "
"""Prefix of a Spark app's output line for a :class:`LakehouseError` that ``needs_pause``."""


class LakehouseError(Exception):
    """An expected error. Its message is for operators: the problem, its consequence and its remedy.

    Commands and Spark apps print the message without a stack trace. Every other exception is a bug.
    """

    is_transient: ClassVar[bool] = False
    """Whether a retry of the same work may succeed."""

    needs_pause: ClassVar[bool] = False
    """Whether the retry should wait some minutes. Only with ``is_transient``."""
