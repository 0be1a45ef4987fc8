"""``make sbom``: write the bill of materials (CycloneDX) of all packages of uv.lock and all jars of jars.lock.

It contains no timestamp and no serial number, so the same locks result in the same file.
"""

import json
import subprocess
from typing import Any
from urllib.parse import quote

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.java import jars

SBOM = PROJECT_FOLDER / "sbom.cdx.json"
_EXPORT = ["export", "--locked", "--no-dev", "--format", "cyclonedx1.5", "--quiet", "--preview"]


def sbom(uv: str) -> str:
    """Return the content of the bill of materials.

    :param uv: path of uv.
    """
    result = subprocess.run([uv, *_EXPORT], cwd=PROJECT_FOLDER, capture_output=True, text=True, check=True)
    bill: dict[str, Any] = json.loads(result.stdout)
    del bill["serialNumber"], bill["metadata"]["timestamp"], bill["metadata"]["tools"]
    components = [_jar(coordinates, digest) for coordinates, digest in sorted(jars.read_lock_file().items())]
    bill["components"] += components
    root = bill["metadata"]["component"]["bom-ref"]
    (project,) = (dependency for dependency in bill["dependencies"] if dependency["ref"] == root)
    project["dependsOn"] = [*project.get("dependsOn", []), *(item["bom-ref"] for item in components)]
    bill["dependencies"] += [{"ref": item["bom-ref"]} for item in components]
    return json.dumps(bill, indent=1, ensure_ascii=False) + "\n"


def _jar(coordinates: str, digest: str) -> dict[str, Any]:
    group, artifact, version = coordinates.split(":")
    purl = f"pkg:maven/{quote(group)}/{quote(artifact)}@{quote(version)}?type=jar"
    return {
        "type": "library",
        "bom-ref": purl,
        "group": group,
        "name": artifact,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "purl": purl,
    }


if __name__ == "__main__":
    import sys

    SBOM.write_text(sbom(sys.argv[1]), encoding="utf-8")
