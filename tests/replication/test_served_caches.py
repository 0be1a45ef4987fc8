"""The server sends keys of the caches that the catalogue lists. A withheld key does not invalidate a whole cache."""

import json

import pytest

from synapse_lakehouse.replication.protocol.dialect import Dialect
from tests.replication.conversation import Conversation, run_conversations
from tests.replication.database import Database

TOKEN = "syt_YQ_secret"


@pytest.mark.parametrize(
    ("cache", "keys", "served"),
    [
        ("get_user_by_id", ["@a:x"], ["@a:x"]),
        ("cs_cache_fake", ["!r:x", "@a:x", "@b:x"], ["!r:x", "@a:x", "@b:x"]),
        ("ph_cache_fake", ["!r:x"], ["!r:x"]),
        ("dr_cache_fake", ["!r:x"], ["!r:x"]),
        ("get_device", ["@a:x"], ["@a:x"]),
        ("_get_e2e_cross_signing_signatures_for_device", ['["@a:x", "D"]'], ['["@a:x", "D"]']),
        ("ignored_by", None, None),
        ("get_monthly_active_count", [], []),
        ("get_user_by_access_token", [TOKEN], [None]),
        ("get_user_by_external_id", ["oidc", TOKEN], [None, None]),
        ("a_module.of_someone_s", [TOKEN], [None]),
        ("get_user_by_access_token", None, None),
    ],
)
def test_keys_of_listed_caches_are_served(
    homeserver: Database, cache: str, keys: list[str] | None, served: list[str | None] | None
) -> None:
    homeserver.add_invalidation(2, "ep1", cache, keys)
    homeserver.set_last_allocated("caches", 2)

    async def follow(conversation: Conversation) -> None:
        conversation.send("REPLICATE caches 1")
        line = (await conversation.read_until(lambda line: line.startswith("RDATA")))[-1]
        assert TOKEN not in line
        assert json.loads(line.split(" ", 3)[3]) == [cache, served, 1]

    run_conversations(homeserver, Dialect.TOKENS, follow)
