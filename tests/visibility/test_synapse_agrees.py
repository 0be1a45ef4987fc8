"""Who may see what on the sample, by the lake: equal to every answer of a real Synapse on the same database."""

from synapse_lakehouse.cli.visibility import judge_at
from synapse_lakehouse.lake import duck
from tests.conftest import Published
from tests.visibility import answers, holding, record


def test_every_answer_on_the_sample_is_synapse_s(published: Published) -> None:
    recorded = answers.load(record.SAMPLE)
    with duck.connect(published.settings) as connection:
        holding.bind_release(connection, published.settings, duck.release(connection, published.settings))
        judge_at(connection, recorded.about["as_of"])
        assert holding.differences(connection, recorded) == []
