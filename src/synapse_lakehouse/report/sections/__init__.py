"""The sections of the page, in their order. Each module declares one section: its queries and charts."""

from typing import Final

from synapse_lakehouse.report.panel import Section
from synapse_lakehouse.report.sections import (
    cost,
    federation,
    growth,
    integrity,
    moderation,
    replication,
    state,
    streams,
    synapse_upkeep,
)

SECTIONS: Final[tuple[Section, ...]] = (
    streams.SECTION,
    growth.SECTION,
    state.SECTION,
    integrity.SECTION,
    moderation.SECTION,
    federation.SECTION,
    replication.SECTION,
    synapse_upkeep.SECTION,
    cost.SECTION,
)
