"""The examples of the README and the tutorial print the shown output."""

import re
import shlex

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from tests.conftest import PublishedLake

EXAMPLES = [
    example
    for document in ("README.md", "docs/tutorial.md")
    for example in re.findall(
        r"^```console\n\$ uv run lakehouse ([^\n]+)\n(.*?)^```",
        (PROJECT_FOLDER / document).read_text(),
        re.DOTALL | re.MULTILINE,
    )
]


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_prints_the_shown_output(published: PublishedLake, command: str, output: str) -> None:
    printed = published.lakehouse(*shlex.split(command)).stdout
    # Blank lines and trailing spaces are not compared.
    assert [line.rstrip() for line in printed.splitlines() if line.strip()] == output.splitlines()


def test_there_are_five_examples() -> None:
    assert len(EXAMPLES) == 5
