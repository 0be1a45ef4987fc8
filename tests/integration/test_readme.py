"""The examples of the README and the tutorial print the shown output."""

import re
import shlex

import pytest

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from tests.conftest import Published

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
def test_an_example_is_real(published: Published, command: str, output: str) -> None:
    printed = published.lakehouse(*shlex.split(command)).stdout
    # The air around a table is left out.
    assert [line.rstrip() for line in printed.splitlines() if line.strip()] == output.splitlines()


def test_five_questions_are_answered() -> None:
    assert len(EXAMPLES) == 5
