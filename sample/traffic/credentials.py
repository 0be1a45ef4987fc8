"""Scenes with secrets that must never leave a homeserver: tokens, keys, addresses, identities."""

import base64
import json

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sample.client import ADMIN, V1, V3, Client, Json, q
from sample.traffic.stage import ADMINISTRATOR, Stage


def credentials(stage: Stage) -> None:
    """Create refresh, login, OpenID and registration tokens, addresses, external identities and a key backup."""
    admin, lena = stage.cast(ADMINISTRATOR, "lena")
    body = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": lena.user_id},
        "password": lena.password,
        "device_id": "REFRESHING",
        "refresh_token": True,
    }
    session = stage.hs.connection.request("POST", f"{V3}/login", body)
    stage.hs.connection.request("POST", f"{V3}/refresh", {"refresh_token": session["refresh_token"]})
    lena.call("POST", f"{V3}/user/{q(lena.user_id)}/openid/request_token")
    admin.call("POST", f"{ADMIN}/v1/registration_tokens/new", {"token": "invite-only"})
    identity: Json = {
        "threepids": [
            {"medium": "email", "address": "lena@mail.example"},
            {"medium": "msisdn", "address": "491700000"},
        ],
        "external_ids": [{"auth_provider": "oidc-corporate", "external_id": "lena-4711"}],
        "user_type": "bot",
    }
    admin.call("PUT", f"{ADMIN}/v2/users/{q(stage.hs.user_id('bot'))}", {"user_type": "bot"})
    admin.call("PUT", f"{ADMIN}/v2/users/{q(lena.user_id)}", identity | {"user_type": None})
    backup = {"algorithm": "m.megolm_backup.v1.curve25519-aes-sha2", "auth_data": {"public_key": "abcd"}}
    version = lena.call("POST", f"{V3}/room_keys/version", backup)["version"]
    key = {"first_message_index": 1, "forwarded_count": 0, "is_verified": True, "session_data": {"secret": "session"}}
    path = f"{V3}/room_keys/keys/{q(stage.found['encrypted'][0])}/session"
    lena.call("PUT", path, key, params={"version": str(version)})
    lena.call("GET", f"{V1}/rooms/{q(stage.found['encrypted'][0])}/hierarchy")
    stage.note("credentials", lena.user_id)


def cross_signing(stage: Stage) -> None:
    """Upload cross-signing keys of two users, and let one verify the other."""
    carol, victor = stage.cast("carol", "victor")
    _, carols_signing_key = _upload_keys(carol)
    victors_master, _ = _upload_keys(victor)
    public = f"ed25519:{_public(carols_signing_key)}"
    signed = victors_master | {"signatures": {carol.user_id: {public: _signature(carols_signing_key, victors_master)}}}
    name = next(iter(victors_master["keys"])).removeprefix("ed25519:")
    carol.call("POST", f"{V3}/keys/signatures/upload", {victor.user_id: {name: signed}})
    stage.note("cross-signing", carol.user_id, victor.user_id)


def _upload_keys(client: Client) -> tuple[Json, Ed25519PrivateKey]:
    """Upload cross-signing keys; return the public master key and the key that signs other users."""
    private = {usage: Ed25519PrivateKey.generate() for usage in ("master", "self_signing", "user_signing")}
    keys: dict[str, Json] = {}
    for usage, key in private.items():
        public = _public(key)
        keys[usage] = {"user_id": client.user_id, "usage": [usage], "keys": {f"ed25519:{public}": public}}
    master = f"ed25519:{_public(private['master'])}"
    for usage in ("self_signing", "user_signing"):
        signature = _signature(private["master"], keys[usage])
        keys[usage]["signatures"] = {client.user_id: {master: signature}}
    client.call("POST", f"{V3}/keys/device_signing/upload", {f"{usage}_key": key for usage, key in keys.items()})
    return keys["master"], private["user_signing"]


def _public(key: Ed25519PrivateKey) -> str:
    return _base64(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def _signature(key: Ed25519PrivateKey, content: Json) -> str:
    unsigned = {name: value for name, value in content.items() if name not in ("signatures", "unsigned")}
    canonical = json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return _base64(key.sign(canonical.encode()))


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode().rstrip("=")
