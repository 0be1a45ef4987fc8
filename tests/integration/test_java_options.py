"""Java options with which Spark's driver cannot start are refused before a run starts."""

import pytest

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.java import runtime


@pytest.mark.parametrize("options", ["-XX:ReservedCodeCacheSize=240MiB", "-XX:+NoSuchOption", "'-Xss1m"])
def test_options_that_java_does_not_start_with_are_refused(options: str) -> None:
    with pytest.raises(runtime.JavaError, match=r"LAKEHOUSE_DRIVER_JAVA_OPTIONS=.*Java reports:\n."):
        runtime.check_driver_options(Settings(_env_file=None, lakehouse_driver_java_options=options))


def test_the_defaults_start_java() -> None:
    runtime.check_driver_options(Settings(_env_file=None))
