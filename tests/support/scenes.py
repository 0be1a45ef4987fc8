"""Play the sample's scenes on a homeserver of any release."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sample.client import MatrixError
from sample.configuration import application_service_token
from sample.environment import VERSION
from sample.homeserver import BridgedClient, Synapse
from sample.traffic.stage import Stage

Scene = Callable[[Stage], None]
THREADS = 4


def play(stage: Stage, scenes: tuple[Scene, ...], version: str) -> None:
    """Play scenes in several threads, on a homeserver of the release ``version``."""
    with ThreadPoolExecutor(THREADS) as executor:
        for future in [
            executor.submit(_play_all, stage, scenes[number::THREADS], version) for number in range(THREADS)
        ]:
            future.result()


def move(stage: Stage, hs: Synapse) -> Stage:
    """Return the stage with its users connected to the restarted homeserver ``hs``."""
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
        except MatrixError as error:
            # An earlier release lacks an endpoint that the scene uses. The rest of the scene is skipped.
            if error.errcode != "M_UNRECOGNIZED" or version == VERSION:
                raise
            print(f"{version} does not support the scene {scene.__name__}: {error}")
