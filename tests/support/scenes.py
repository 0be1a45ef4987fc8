"""Play scenes on a homeserver of any release."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sample.client import MatrixError
from sample.configuration import application_service_token
from sample.environment import VERSION
from sample.homeserver import BridgedClient, Synapse
from sample.traffic.stage import Stage

Scene = Callable[[Stage], None]
TROUPES = 4


def play(stage: Stage, scenes: tuple[Scene, ...], version: str) -> None:
    """Play scenes, some side by side, on a homeserver of the release ``version``."""
    with ThreadPoolExecutor(TROUPES) as troupes:
        for playing in [
            troupes.submit(_play_all, stage, scenes[number::TROUPES], version) for number in range(TROUPES)
        ]:
            playing.result()


def move(stage: Stage, hs: Synapse) -> Stage:
    """The stage after a restart of its homeserver."""
    for user in stage.users.values():
        user.connection = hs.connection
        if isinstance(user, BridgedClient):
            # The application service has another token after each start.
            user.token = application_service_token(hs.secret)
    return Stage(hs, stage.users, stage.found, stage.seed)


def _play_all(stage: Stage, scenes: tuple[Scene, ...], version: str) -> None:
    for scene in scenes:
        try:
            stage.play(scene)
        except MatrixError as refusal:
            # An earlier release lacks what the rest of the scene asks for.
            if refusal.errcode != "M_UNRECOGNIZED" or version == VERSION:
                raise
            print(f"{version} has no {scene.__name__}: {refusal}")
