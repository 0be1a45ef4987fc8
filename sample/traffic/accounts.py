"""Scenes with data of users: receipts, account data, devices, to-device messages, presence, push."""

from sample.client import ADMIN, UNSTABLE, V3, Client, Json, q
from sample.traffic.stage import ADMINISTRATOR, Stage, visibility

CLIENT_CONFIG = "io.element.synapse.admin_client_config"
READERS = ("alice", "bob", "carol", "dave", "frank", "grace", "heidi", "peggy")


def receipts(stage: Stage) -> None:
    """Send public, private and threaded receipts that advance, read markers and typing notices."""
    room = stage.room("receipts", "bob", room_version="11", preset="public_chat")
    for name in READERS:
        if name != "bob":
            stage.users[name].join(room)
    for _ in range(4):
        messages = stage.chat(room, READERS, 6)
        for name in READERS:
            reader, event = stage.users[name], stage.rng.choice(messages)
            reader.receipt(room, event, stage.rng.choice(("m.read", "m.read.private")))
            reader.receipt(room, messages[-1], "m.read.private" if name == "carol" else "m.read", thread="main")
        markers = {"m.fully_read": messages[0], "m.read": messages[1], "m.read.private": messages[2]}
        stage.users["peggy"].call("POST", f"{V3}/rooms/{q(room)}/read_markers", markers)
        path = f"{V3}/rooms/{q(room)}/typing/{q(stage.users['dave'].user_id)}"
        stage.users["dave"].call("PUT", path, {"typing": True, "timeout": 1000})


def account_data(stage: Stage) -> None:
    """Set global and room account data, tags, deleted entries and the administrators' client configuration."""
    room = stage.room("account-data", "ursula")
    stage.enter(room, "ursula", "victor", "walter")
    for name in ("ursula", "victor", "walter"):
        user = stage.users[name]
        user.set_account_data("org.example.settings", {"theme": "dark", "ключ": "значение"})
        user.set_account_data("org.example.settings", {"theme": "light", "": ""})
        user.set_account_data("m.direct", {stage.users["bob"].user_id: [room]})
        user.set_account_data("org.example.room", {"colour": stage.rng.randint(0, 7)}, room)
        tags = f"{V3}/user/{q(user.user_id)}/rooms/{q(room)}/tags"
        user.call("PUT", f"{tags}/m.favourite", {"order": 0.5})
        user.call("PUT", f"{tags}/u.wörk")
        user.call("DELETE", f"{tags}/u.wörk")
    walter = stage.users["walter"]
    unstable = f"{UNSTABLE}/org.matrix.msc3391/user/{q(walter.user_id)}"
    walter.call("DELETE", f"{unstable}/account_data/org.example.settings")
    walter.call("DELETE", f"{unstable}/rooms/{q(room)}/account_data/org.example.room")
    config = {"return_soft_failed_events": True, "return_policy_server_spammy_events": False}
    stage.users[ADMINISTRATOR].set_account_data(CLIENT_CONFIG, config)
    stage.users["bob"].set_account_data(CLIENT_CONFIG, {"return_soft_failed_events": "yes"})
    stage.note("admin client config", stage.users[ADMINISTRATOR].user_id, stage.users["bob"].user_id)


def ignoring(stage: Stage) -> None:
    """Let users ignore other users. Two ignore each other, and one ends ignoring a user."""
    room = stage.room("ignored", "yusuf", state=[visibility("shared")])
    stage.enter(room, "yusuf", "zoe", "mallory", "xenia")
    stage.chat(room, ["yusuf", "zoe", "mallory", "xenia"], 16)
    choices = {
        "bob": ["mallory"],
        "zoe": ["mallory", "xenia"],
        "xenia": ["zoe"],
        "dave": ["erin", "mallory"],
        "yusuf": ["mallory"],
    }
    for name, ignored_names in choices.items():
        ignored: Json = {stage.hs.user_id(ignored_name): {} for ignored_name in ignored_names}
        stage.users[name].set_account_data("m.ignored_user_list", {"ignored_users": ignored})
        stage.note("ignores others", stage.users[name].user_id)
    remote: Json = {"ignored_users": {"@nobody:elsewhere.example": {}}}
    stage.users["yusuf"].set_account_data("m.ignored_user_list", remote)
    stage.users["xenia"].set_display_name("Ξένια 2")  # state of an ignored user
    stage.chat(room, ["yusuf", "zoe", "mallory", "xenia"], 16)


def devices(stage: Stage) -> None:
    """Create an encrypted room, add, rename and delete devices with keys, and send to-device messages."""
    encryption: Json = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    room = stage.room("encrypted", "carol", state=[encryption], room_version="11")
    stage.enter(room, "carol", "dave", "lena", "victor")
    for name in ("carol", "dave", "lena", "victor"):
        user = stage.users[name]
        upload_keys(user)
        phone = stage.hs.login(user, f"PHONE{name.upper()}", "phone ☎")
        upload_keys(phone)
        phone.call("PUT", f"{V3}/devices/{phone.device_id}", {"display_name": "new phone"})
        ciphertext = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AwgA" * 20, "device_id": user.device_id}
        for _ in range(4):
            user.send(room, "m.room.encrypted", ciphertext)
        path = f"{V3}/sendToDevice/m.room_key_request/d{next(user.connection.transactions)}"
        user.call("PUT", path, {"messages": {stage.users["carol"].user_id: {"*": {"action": "request"}}}})
        if name in ("dave", "lena"):
            phone.call("POST", f"{V3}/logout")
    version = {"algorithm": "m.megolm_backup.v1.curve25519-aes-sha2", "auth_data": {"public_key": "abcd"}}
    stage.users["carol"].call("POST", f"{V3}/room_keys/version", version)
    since = stage.users["carol"].call("GET", f"{V3}/sync", params={"timeout": "0"})["next_batch"]
    stage.users["carol"].call("GET", f"{V3}/sync", params={"timeout": "0", "since": since})  # acknowledges


def upload_keys(client: Client) -> None:
    """Upload the device keys and one-time keys of ``client``'s device."""
    device = client.device_id
    keys: Json = {
        "user_id": client.user_id,
        "device_id": device,
        "algorithms": ["m.olm.v1.curve25519-aes-sha2", "m.megolm.v1.aes-sha2"],
        "keys": {f"ed25519:{device}": "A" * 43, f"curve25519:{device}": "B" * 43},
        "signatures": {client.user_id: {f"ed25519:{device}": "C" * 86}},
    }
    one_time = {f"signed_curve25519:{number}": {"key": "D" * 43, "signatures": {}} for number in range(3)}
    client.call("POST", f"{V3}/keys/upload", {"device_keys": keys, "one_time_keys": one_time})


def presence(stage: Stage) -> None:
    """Change presence, with status messages."""
    states = ("online", "unavailable", "offline")
    for number, name in enumerate(READERS):
        user = stage.users[name]
        for step in range(2):
            status = {"presence": states[(number + step) % 3], "status_msg": f"{stage.words()} {step}"}
            user.call("PUT", f"{V3}/presence/{q(user.user_id)}/status", status)


def push(stage: Stage) -> None:
    """Add, disable and delete push rules; set, change and delete pushers."""
    for name in ("alice", "bob", "carol", "grace"):
        user = stage.users[name]
        rule = f"{V3}/pushrules/global/content/cake-{name}"
        user.call("PUT", rule, {"pattern": "cake*lie", "actions": ["notify"]})
        user.call("PUT", f"{rule}/enabled", {"enabled": False})
        override: Json = {"conditions": [{"kind": "event_match", "key": "type", "pattern": "m.*"}], "actions": []}
        user.call("PUT", f"{V3}/pushrules/global/override/quiet", override)
        user.call("DELETE", rule)
        for number in range(2):
            pusher: Json = {
                "kind": "http",
                "app_id": "org.example.app",
                "pushkey": f"pushkey-{name}-{number}",
                "app_display_name": "App",
                "device_display_name": "Phone 📱",
                "lang": "de",
                "data": {"url": "https://push.example/_matrix/push/v1/notify"},
                "append": True,
            }
            user.call("POST", f"{V3}/pushers/set", pusher)
            if number == 0:
                user.call("POST", f"{V3}/pushers/set", pusher | {"lang": "fr"})
        if name in ("bob", "carol"):
            user.call("POST", f"{V3}/pushers/set", pusher | {"kind": None})


def profiles(stage: Stage) -> None:
    """Change display names and an avatar in all rooms of their owners; add a filter; sync."""
    for name in ("peggy", "bob", "judy"):
        stage.users[name].set_display_name(f"{name.title()} {stage.rng.choice('αβγδ')}")
    user = stage.users["lena"]
    avatar = {"avatar_url": f"mxc://{stage.hs.server_name}/avatar"}
    user.call("PUT", f"{V3}/profile/{q(user.user_id)}/avatar_url", avatar)
    user.call("POST", f"{V3}/user/{q(user.user_id)}/filter", {"room": {"timeline": {"limit": 5}}})
    user.call("GET", f"{V3}/sync", params={"timeout": "0"})


def restrictions(stage: Stage) -> None:
    """Lock, suspend and shadow-ban users. Messages of a shadow-banned user reach no other user."""
    admin = stage.users[ADMINISTRATOR]
    room = stage.room("restrictions", "alice")
    stage.enter(room, "alice", "walter", "silent", "sybil")
    stage.chat(room, ["alice", "walter", "silent", "sybil"], 8)
    admin.call("POST", f"{ADMIN}/v1/users/{q(stage.hs.user_id('silent'))}/shadow_ban")
    stage.users["silent"].say(room, "can you hear me?")
    admin.call("PUT", f"{ADMIN}/v1/suspend/{q(stage.hs.user_id('sybil'))}", {"suspend": True})
    admin.call("PUT", f"{ADMIN}/v2/users/{q(stage.hs.user_id('walter'))}", {"locked": True})
    for feature, name in (("shadow-banned", "silent"), ("suspended", "sybil"), ("locked", "walter")):
        stage.note(feature, stage.hs.user_id(name))
