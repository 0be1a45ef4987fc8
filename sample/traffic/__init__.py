"""Traffic that produces everything a Synapse database can hold, over the client API of a real homeserver."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from sample.homeserver import Synapse
from sample.traffic import accounts, credentials, federation, forks, messages, moderation, rooms
from sample.traffic import visibility as history
from sample.traffic.stage import ADMINISTRATOR, BRIDGED, CAST, Stage

SEED = 1163
# Scenes of one act run side by side; an act ends before the next begins.
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
    """Register everybody and play every scene on a fresh homeserver.

    :param remote: another fresh homeserver of the same federation, for the scenes that need one.
    :returns: the stage as it is left; its ``found`` says which rooms and users show what.
    :raises MatrixError: when the homeserver refuses what it should accept.
    """
    stage = populate(hs, seed)
    with ThreadPoolExecutor(max(map(len, ACTS))) as troupes:
        for act in ACTS:
            for playing in [troupes.submit(_play_all, stage, scenes) for scenes in act]:
                playing.result()
    if remote:
        stage.play(federation.federation, remote)
    return stage


def populate(hs: Synapse, seed: int = SEED) -> Stage:
    """Register everybody on a fresh homeserver; return the stage, on which nothing was played."""
    users = {name: hs.register(name, displayname=display) for name, display in CAST.items()}
    users[ADMINISTRATOR] = hs.register(ADMINISTRATOR, admin=True)
    users |= {f"bridged_{name}": hs.register_bridged(name) for name in BRIDGED}
    return Stage(hs, users, seed=seed)


def _play_all(stage: Stage, scenes: Iterable[Callable[[Stage], None]]) -> None:
    for scene in scenes:
        stage.play(scene)
