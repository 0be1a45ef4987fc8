"""``lakehouse compress`` in tiny transactions, so that there are many to be killed in; says when it begins."""

import sys
from functools import partial

from synapse_lakehouse.cli import app, compressing
from synapse_lakehouse.rewriting import transaction, writing


class Tiny(transaction.Pace):
    """Never more than a few rows."""

    def took(self, seconds: float, work: int) -> None:
        """Learn nothing."""
        self.longest = max(self.longest, seconds)


if __name__ == "__main__":
    compressing.Writer = partial(writing.Writer, pace=Tiny(work=20))  # type: ignore[assignment, misc]
    print("begins", flush=True)
    app(sys.argv[1:])
