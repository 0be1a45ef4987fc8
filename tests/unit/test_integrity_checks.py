"""The integrity checks have the same names in code, model, description and runbook."""

import re
from graphlib import TopologicalSorter

import yaml

from synapse_lakehouse.catalogue import load_catalogue
from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.room_state.group_tree import StateGroupFault
from synapse_lakehouse.room_state.integrity_check import Harm
from synapse_lakehouse.room_state.integrity_checks import INTEGRITY_CHECKS

NAMES = [check.name for check in INTEGRITY_CHECKS]


def test_model_description_and_runbook_have_the_same_checks() -> None:
    folder = PROJECT_FOLDER / "dbt" / "models"
    # The first column of each branch of a union, and the outcomes of a CASE.
    names = re.compile(r"(?:^select\s+|then )'([a-z_]+)'(?=,|\n| as check_name)", re.MULTILINE)
    actual = {name for model in (folder / "integrity").glob("*.sql") for name in names.findall(model.read_text())}
    actual |= {reference.check for table in load_catalogue().tables for reference in table.references}
    assert actual | {"copied_value_differs"} | {f"state_group_{fault}" for fault in StateGroupFault} == {*NAMES}
    models = yaml.safe_load((folder / "gold" / "state" / "_state.yml").read_text())["models"]
    (columns,) = (model["columns"] for model in models if model["name"] == "state_integrity")
    description = {column["name"]: column["description"] for column in columns}["check_name"]
    assert {*re.findall("`(.*?)`", description)} == {*NAMES}
    table = re.findall(r"^\| `(.*?)` \|", (PROJECT_FOLDER / "docs/runbooks/integrity.md").read_text(), re.MULTILINE)
    assert {*table} == {*NAMES}


def test_the_macro_names_the_tables_of_all_references() -> None:
    sql = (PROJECT_FOLDER / "dbt" / "macros" / "references.sql").read_text()
    sql = sql[sql.index("macro referenced_tables") :]
    actual = re.findall("'([a-z_]+)'", sql[sql.index("[") : sql.index("]")])
    tables = [table for table in load_catalogue().tables if table.references]
    targets = {
        name.partition(".")[0] for table in tables for reference in table.references for name in reference.targets
    }
    assert actual == sorted({table.name for table in tables} | targets)


def test_names_are_unique() -> None:
    assert len(NAMES) == len(set(NAMES))


def test_a_cause_is_at_least_as_harmful_as_its_finding() -> None:
    checks = {check.name: check for check in INTEGRITY_CHECKS}
    # static_order() refuses a cycle, in which every finding would have another one as its cause.
    assert {*TopologicalSorter({check.name: check.follows for check in INTEGRITY_CHECKS}).static_order()} == {*NAMES}
    worst_first = [*Harm]
    for check in INTEGRITY_CHECKS:
        for cause in check.follows:
            assert worst_first.index(checks[cause].harm) <= worst_first.index(check.harm), (check.name, cause)
