"""``make docs``: build the documentation site, with Mermaid's script and dbt's documentation.

Warnings are errors. Links to missing pages or headings are errors, too.
"""

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from dbt.cli.main import dbtRunner

from synapse_lakehouse.config.settings import PROJECT_FOLDER

_OUTPUT = PROJECT_FOLDER / ".lakehouse" / "docs"
_MERMAID = "mermaid@11.17.2"
"""Package that npm downloads. npm must be installed."""
_MERMAID_SHA256 = "6ad2f42c3fc26bbf9e45cbb6d11898972573ea52b33a5f4ff51952899f950ffd"


def main() -> int:
    """Build the site in ``.lakehouse/docs/html``; return Sphinx's exit code."""
    script = _OUTPUT / "static" / "mermaid.min.js"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_bytes(_fetch_mermaid())
    sphinx = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "--fresh-env",
        "--builder",
        "html",
    ]
    result = subprocess.run([*sphinx, PROJECT_FOLDER / "docs", _OUTPUT / "html"], check=False)
    if result.returncode:
        return result.returncode
    shutil.copy(_dbt_page(), _OUTPUT / "html" / "dbt.html")
    print(f"The site is {_OUTPUT / 'html' / 'index.html'}.")
    return 0


def _dbt_page() -> Path:
    """Generate dbt's documentation from the project alone, without a lake; return its only file."""
    target = _OUTPUT / "dbt"
    folders = [f"--{name}={path}" for name, path in (
        ("project-dir", PROJECT_FOLDER / "dbt"), ("profiles-dir", PROJECT_FOLDER / "dbt"),
        ("target-path", target), ("log-path", target),
    )]  # fmt: skip
    for command in (["parse"], ["docs", "generate", "--static", "--empty-catalog", "--no-compile"]):
        result = dbtRunner().invoke(["--quiet", *command, *folders])
        if not result.success:
            raise SystemExit(f"dbt {command[0]} failed: {result.exception}")
    return target / "static_index.html"


def _fetch_mermaid() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", "--pack-destination", folder, _MERMAID], check=True)  # noqa: S607
        (file,) = Path(folder).iterdir()
        package = file.read_bytes()
    if hashlib.sha256(package).hexdigest() != _MERMAID_SHA256:
        raise SystemExit(
            f"{_MERMAID} does not have the pinned SHA-256. Nothing was built. Check the package's release."
        )
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        member = archive.extractfile("package/dist/mermaid.min.js")
        if member is None:
            raise SystemExit(f"{_MERMAID} has no dist/mermaid.min.js. Nothing was built.")
        return member.read()


if __name__ == "__main__":
    sys.exit(main())
