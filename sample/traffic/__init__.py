"""Requests to a real homeserver's client API that fill all parts of a Synapse database.

Each function with a :class:`Stage` is a scene. Its name seeds its random choices.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from sample.homeserver import Synapse
from sample.traffic import accounts, credentials, federation, forks, messages, moderation, rooms
from sample.traffic import visibility as history
from sample.traffic.stage import ADMINISTRATOR, BRIDGED, CAST, Stage

SEED = 1163
# The groups of an act run in parallel. An act ends before the next act begins.
ACTS = (
    (
        (history.all_visibilities, history.changing_visibility, history.peeking),
        (rooms.room_versions, rooms.upgrades, rooms.aliases_and_directory, rooms.knocking, rooms.spaces),
        (messages.redactions, messages.relations, messages.calls, messages.unusual_json, rooms.long_state_chain),
        (messages.sticky_and_delayed, rooms.crowded, rooms.retention, rooms.abandoned, rooms.refused),
    ),
    (
        (forks.forks,),
        (accounts.receipts, accounts.devices, accounts.presence, accounts.push),
        (accounts.account_data, accounts.ignoring, moderation.reports, accounts.profiles),
    ),
    (
        (moderation.purged_history, moderation.deleted_rooms),
        (moderation.erasure, accounts.restrictions, credentials.credentials, credentials.cross_signing),
    ),
)


def drive(hs: Synapse, remote: Synapse | None = None, seed: int = SEED) -> Stage:
    """Register all users and play all scenes on an empty homeserver.

    :param remote: another empty homeserver of the same federation, for scenes that need federation.
    :returns: the stage. Its ``found`` contains rooms and users by feature.
    :raises MatrixError: if the homeserver refuses a request that it should accept.
    """
    stage = populate(hs, seed)
    with ThreadPoolExecutor(max(map(len, ACTS))) as executor:
        for act in ACTS:
            for future in [executor.submit(_play_all, stage, scenes) for scenes in act]:
                future.result()
    if remote:
        stage.play(federation.federation, remote)
    return stage


def populate(hs: Synapse, seed: int = SEED) -> Stage:
    """Register all users on an empty homeserver; return the stage before any scene."""
    users = {name: hs.register(name, displayname=display) for name, display in CAST.items()}
    users[ADMINISTRATOR] = hs.register(ADMINISTRATOR, admin=True)
    users |= {f"bridged_{name}": hs.register_bridged(name) for name in BRIDGED}
    return Stage(hs, users, seed=seed)


def _play_all(stage: Stage, scenes: Iterable[Callable[[Stage], None]]) -> None:
    for scene in scenes:
        stage.play(scene)
