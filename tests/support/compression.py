"""``lakehouse compress`` with tiny transactions, so that a kill hits one of many; it reports its begin."""

import random
import sys
from functools import partial

import pytest

from synapse_lakehouse.cli import app
from synapse_lakehouse.cli.compression import compress_actions
from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.plan_room import estimate_rooms
from synapse_lakehouse.compressor.postgres import transaction, writer
from synapse_lakehouse.compressor.settings import CompressorSettings
from tests.support.state_rooms import KINDS, World, begin, grow


class Tiny(transaction.TransactionSize):
    """Never more than a few rows."""

    def record_success(self, seconds: float, work: int) -> None:
        """Do not adapt."""
        self.longest = max(self.longest, seconds)


def warm() -> None:
    """Load what is compiled."""
    world = World(random.Random(0))
    grow(world, begin(world, KINDS, 10), 40)
    for strategy in Strategy:
        estimate_rooms(world.tables(), CompressorSettings(strategy=strategy), {})


if __name__ == "__main__":
    warm()
    pytest.MonkeyPatch().setattr(compress_actions, "GroupWriter", partial(writer.GroupWriter, pace=Tiny(work=20)))
    print("begins", flush=True)
    app(sys.argv[1:])
