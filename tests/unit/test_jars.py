"""Spark gets the jars of the lock, with their SHA-256, and no others."""

import hashlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from supply_chain import lock_jars
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.java import jars

GOOD = f"org.example:good:1.0@sha256:{'a' * 64}"
ACCEPTED = {"org.example:one_2.13:1.0": b"one", "org.example:two:2.0": b"two"}
DIGESTS = {coordinates: hashlib.sha256(content).hexdigest() for coordinates, content in ACCEPTED.items()}
EVIL = hashlib.sha256(b"evil").hexdigest()
Resolver = Callable[..., list[str]]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """Return a function that fakes the resolver with ``additional_jars``, and returns the requested coordinates."""

    def resolve(**additional_jars: bytes) -> list[str]:
        requests: list[str] = []

        def fetch(folder: Path, packages: list[str]) -> str:
            requests.extend(packages)
            (folder / "jars").mkdir(parents=True, exist_ok=True)
            for coordinates, content in (ACCEPTED | additional_jars).items():
                group, artifact, version = coordinates.split(":")
                (folder / "jars" / f"{group}_{artifact}-{version}.jar").write_bytes(content)
            return "resolved"

        monkeypatch.setattr(jars, "resolve_packages", fetch)
        return requests

    return resolve


@pytest.mark.parametrize(
    "packages",
    ["iceberg-aws-bundle", "org.apache.iceberg:iceberg-aws-bundle", "a:b:1:c", "a::1", "org.example:good:1.0",
     f"a:b:1@sha256:{'a' * 63}", f"a:b:1@sha256:{'A' * 64}", f"a:b:1@md5:{'a' * 32}", f"a:b:1@{'a' * 64}"],
)  # fmt: skip
def test_coordinates_without_a_hash_are_refused(packages: str, settings: Settings) -> None:
    invalid_settings = settings.model_copy(update={"lakehouse_spark_packages": f"{GOOD}, {packages}"})
    with pytest.raises(jars.JarError, match=f"LAKEHOUSE_SPARK_PACKAGES has '{packages}', .*group:artifact:version@sha"):
        jars.install_jars(invalid_settings)


def test_packages_have_coordinates_and_a_hash() -> None:
    assert jars.parse_packages(f" {GOOD} ,a:b:1@sha256:{'0' * 64},") == {
        "org.example:good:1.0": "a" * 64,
        "a:b:1": "0" * 64,
    }
    assert jars.parse_packages("") == {}


def test_only_spark_s_class_runs_beside_unchecked_jars() -> None:
    jar_folder = Path(str(find_spec("pyspark").origin)).parent / "jars"  # type: ignore[union-attr]
    name = f"{jars.RUN_WHEN_RESOLVED.replace('.', '/')}.class"
    assert any(name in ZipFile(jar).namelist() for jar in jar_folder.glob("hadoop-*.jar"))


def test_the_lock_has_all_required_packages() -> None:
    assert set(jars.REQUIRED_PACKAGES) < jars.read_lock_file().keys()
    assert all(len(digest) == 64 for digest in jars.read_lock_file().values())
    assert lock_jars.LOCK.read_text().startswith(jars.LOCK_FILE_HEADER)


def test_accepted_jars_are_fetched_once(tmp_path: Path, resolver: Resolver) -> None:
    requests = resolver()
    expected = ["org.example:one_2.13:1.0"]

    first, second = (jars.install_accepted_jars(tmp_path, expected, DIGESTS) for _ in range(2))

    assert [path.read_bytes() for path in first] == [b"one", b"two"]
    assert first == second
    assert requests == expected


def test_an_unaccepted_jar_is_refused_each_time(tmp_path: Path, resolver: Resolver) -> None:
    resolver(**{"org.evil:evil-all_2.13:6.6": b"evil"})
    for _ in range(2):
        with pytest.raises(jars.JarError, match=f"org.evil:evil-all_2.13:6.6@sha256:{EVIL}"):
            jars.install_accepted_jars(tmp_path, ["org.example:one_2.13:1.0"], DIGESTS)


def test_a_jar_with_another_hash_is_refused(tmp_path: Path, resolver: Resolver) -> None:
    resolver(**{"org.example:two:2.0": b"evil"})
    with pytest.raises(jars.JarError, match=r"org\.example:two:2\.0 has the SHA-256"):
        jars.install_accepted_jars(tmp_path, ["org.example:one_2.13:1.0"], DIGESTS)


def test_a_changed_jar_is_refused(tmp_path: Path, resolver: Resolver) -> None:
    resolver()
    paths = jars.install_accepted_jars(tmp_path, ["org.example:one_2.13:1.0"], DIGESTS)
    paths[1].write_bytes(b"evil")
    with pytest.raises(jars.JarError, match=r"org\.example:two:2\.0 has the SHA-256"):
        jars.install_accepted_jars(tmp_path, ["org.example:one_2.13:1.0"], DIGESTS)


def test_an_added_jar_is_refused(tmp_path: Path, resolver: Resolver) -> None:
    resolver()
    paths = jars.install_accepted_jars(tmp_path, ["org.example:one_2.13:1.0"], DIGESTS)
    paths[0].with_name("evil.jar").write_bytes(b"evil")
    with pytest.raises(jars.JarError, match=r"evil\.jar@sha256"):
        jars.install_accepted_jars(tmp_path, ["org.example:one_2.13:1.0"], DIGESTS)


@pytest.mark.heavy
def test_maven_s_repository_has_the_locked_jars() -> None:
    assert lock_jars.lock() == lock_jars.LOCK.read_text()
