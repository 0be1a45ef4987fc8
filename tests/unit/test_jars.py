"""Which jars Spark gets, before any is fetched."""

import pytest

from synapse_lakehouse.embedded import jars
from synapse_lakehouse.settings import Settings


@pytest.mark.parametrize("packages", ["iceberg-aws-bundle", "org.apache.iceberg:iceberg-aws-bundle", "a:b:1:c", "a::1"])
def test_what_is_no_coordinate_is_refused(packages: str, settings: Settings) -> None:
    given = settings.model_copy(update={"lakehouse_spark_packages": f"org.example:good:1.0, {packages}"})
    with pytest.raises(jars.JarError, match=f"LAKEHOUSE_SPARK_PACKAGES has '{packages}', .*group:artifact:version"):
        jars.installed(given)
    assert not list(settings.lakehouse_home.iterdir())
