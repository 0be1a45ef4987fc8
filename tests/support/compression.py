"""Run ``lakehouse compress`` with small transactions, so that a kill can interrupt it between two of them.

The program prints the line ``begins`` before the command starts.
"""

import random
import sys
from functools import partial

import pytest

from synapse_lakehouse.cli import app
from synapse_lakehouse.cli.compression import compress_actions
from synapse_lakehouse.compressor.algorithm.compression_settings import Strategy
from synapse_lakehouse.compressor.algorithm.plan_room import estimate_room
from synapse_lakehouse.compressor.postgres import transaction, writer
from synapse_lakehouse.compressor.settings import CompressorSettings
from tests.support.state_rooms import KINDS, World, begin_rooms, grow_rooms


class SmallTransactions(transaction.TransactionSize):
    """Transactions of at most a few rows."""

    def record_success(self, seconds: float, work: int) -> None:
        """Record the duration. Do not change the size of transactions."""
        self.longest = max(self.longest, seconds)


def compile_functions() -> None:
    """Compile the Numba functions, or load them from their cache."""
    world = World(random.Random(0))
    grow_rooms(world, begin_rooms(world, KINDS, 10), 40)
    for strategy in Strategy:
        layout = CompressorSettings(strategy=strategy).layout
        estimate_room(world.tables(), next(iter(world.groups.values())), layout, None)


if __name__ == "__main__":
    compile_functions()
    pytest.MonkeyPatch().setattr(
        compress_actions, "GroupWriter", partial(writer.GroupWriter, pace=SmallTransactions(work=20))
    )
    print("begins", flush=True)
    app(sys.argv[1:])
