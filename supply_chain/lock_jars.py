"""``make lock-jars``: resolve Spark's jars and record the SHA-256 of each. Review the changes before you commit."""

from pathlib import Path
from tempfile import TemporaryDirectory

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.java import jars

LOCK = PROJECT_FOLDER / "src" / "synapse_lakehouse" / "java" / "jars.lock"


def lock() -> str:
    """Return the content of ``jars.lock``, from Maven's repository."""
    with TemporaryDirectory() as folder:
        report = jars.resolve_packages(Path(folder), jars.REQUIRED_PACKAGES)
        digests = jars.list_resolved_jars(Path(folder))
    if missing := [package for package in jars.REQUIRED_PACKAGES if package not in digests]:
        raise jars.JarError(f"{', '.join(missing)} could not be fetched. The resolver reports:\n{report[-2000:]}")
    return jars.LOCK_FILE_HEADER + "".join(
        f"{digest}  {coordinates}\n" for coordinates, digest in sorted(digests.items())
    )


if __name__ == "__main__":
    LOCK.write_text(lock(), encoding="utf-8")
