"""``make generate``: write the reference pages, and the pictures of layers and audit tables, from the declarations.

A test compares the pages with the declarations.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from docs import synapse_releases
from synapse_lakehouse.alerts.integrity_kinds import kind_of_check
from synapse_lakehouse.cli import app
from synapse_lakehouse.config.settings import PROJECT_FOLDER, Settings
from synapse_lakehouse.room_state.integrity_checks import INTEGRITY_CHECKS

DOCS = PROJECT_FOLDER / "docs"
MODELS = PROJECT_FOLDER / "dbt" / "models"
_NOTICE = "<!-- `make generate` writes this page. -->\n"
_TABLES_WITHOUT_SNAPSHOT = ("audit.snapshots", "audit.releases", "audit.compression_runs", "gold.compression_plan")
"""Tables without a relation to ``audit.snapshots`` in the picture: the picture shows another relation or none."""
_LAYERS = re.compile(r"(?<=<!-- layers -->\n).*(?=<!-- end of layers -->)", re.DOTALL)


def pages() -> dict[Path, str]:
    """Return the content of each generated file, by path."""
    architecture = DOCS / "architecture.md"
    reference = DOCS / "reference"
    return {
        reference / "settings.md": settings_page(),
        reference / "commands.md": commands_page(),
        reference / "tables.md": tables_page(),
        reference / "audit.md": audit_page(),
        reference / "integrity-checks.md": integrity_checks_page(),
        reference / "synapse-releases.md": synapse_releases_page(),
        architecture: _LAYERS.sub(lambda _: layers_picture(), architecture.read_text(encoding="utf-8")),
    }


def settings_page() -> str:
    """Return the page of settings: a row for each setting."""
    rows = [
        (f"`{name.upper()}`", _default(field.default), _escape(field.description or ""))
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join([
        _NOTICE + "# Settings\n",
        "Set these variables in the environment or in `.env` of the current folder. The environment has precedence",
        "over `.env`. A variable without a value is ignored, so an empty variable of the environment does not hide the",
        "value in `.env`. Without any setting, everything runs on this machine: a run copies the shipped sample, and",
        "commands read the lake of the latest run.\n",
        *_table(("setting", "default", "meaning"), rows),
        "",
    ])  # fmt: skip


def commands_page() -> str:
    """Return the page of commands: a section for each command, with its arguments and options."""
    lines = [
        _NOTICE + "# Commands\n",
        "[Output formats](output.md) describes the values of `--format`.",
        "The [glossary](../glossary.md) explains the terms.\n",
    ]
    for path, command in _commands(get_command(app), "lakehouse"):
        lines += [f"## `{path}`\n", _escape(" ".join((command.help or "").split())), ""]
        rows = []
        for parameter in command.params:
            if "--help" in parameter.opts:
                continue
            is_argument = parameter.param_type_name == "argument"
            names = (
                (parameter.name or "").upper()
                if is_argument
                else "`, `".join([*parameter.opts, *parameter.secondary_opts])
            )
            text = " ".join((getattr(parameter, "help", None) or "").split())
            rows.append((f"`{names}`", "" if is_argument else _default(parameter.default), _escape(text)))
        lines += [*_table(("argument or option", "default", "meaning"), rows), ""] if rows else []
    return "\n".join(lines)


def tables_page() -> str:
    """Return the page of the tables of bronze, silver and gold, with a row for each column."""
    lines = [
        _NOTICE + "# Tables of bronze, silver and gold\n",
        "This page describes the tables and their columns. The [audit tables](audit.md) and the",
        "[checks](integrity-checks.md) of `gold.state_integrity` have pages of their own.",
        "A table of references names the check that finds a missing row, and the cases in which it is no fault.",
        "Column types are those of Spark SQL. The [glossary](../glossary.md) explains the terms.\n",
    ]  # fmt: skip
    files = [file for file in sorted(MODELS.rglob("*.yml")) if file.parent.name != "audit"]
    tables = sorted((table for file in files for table in _tables(file)), key=lambda table: table[0])
    for layer in ("bronze", "silver", "gold"):
        lines.append(f"## {layer}\n")
        for name, table in tables:
            if name.startswith(f"{layer}."):
                lines += _section(name, table)
    return "\n".join(lines)


def audit_page() -> str:
    """Return the page of the audit tables: their picture, and a row for each column."""
    tables = list(_tables(MODELS / "audit" / "_audit__sources.yml"))
    lines = [
        _NOTICE + "# Audit tables\n",
        "The audit tables record which data runs read, measured, validated and published. Runs, the DAG `stream_watch`",
        "and the compressor append to these tables, which have no branches. If a run has several tries, only the rows",
        "of the last try are valid, and the keys in the picture (`PK`) identify only these rows. Times are in UTC. The",
        "[glossary](../glossary.md) explains the terms.\n",
        "`audit.releases` names the run of each release. To read the records of a release, join an audit table with",
        "`audit.releases` by `using (run_id)`.\n",
        "```mermaid", "erDiagram",
    ]  # fmt: skip
    for name, table in tables:
        entity = name.replace(".", "_")
        if any(column["name"] == "run_id" for column in table["columns"]) and name not in _TABLES_WITHOUT_SNAPSHOT:
            lines.append(f"    audit_snapshots ||--o{{ {entity} : run_id")
        keys = table["config"]["meta"]["primary_key"]
        types = {column["name"]: column["data_type"].partition("<")[0] for column in table["columns"]}
        lines += [f"    {entity} {{", *(f"        {types[key]} {key} PK" for key in keys), "    }"]
    lines += [
        "    audit_snapshots ||--o| audit_releases : run_id",
        "    audit_releases ||--o{ gold_compression_plan : release",
        "    gold_compression_plan ||--o| audit_compression_runs : run_id",
        "```",
        "",
    ]
    for name, table in tables:
        lines += _section(name, table, "##")
    return "\n".join(lines)


def integrity_checks_page() -> str:
    """Return the page of integrity checks: a row for each check of Synapse's database."""
    rows = [
        (f"`{check.name}`", check.title, check.means, check.harm, f"[{kind}](../runbooks/{kind}.md)", check.follows)
        for check, kind in ((check, kind_of_check(check)) for check in INTEGRITY_CHECKS)
    ]
    return "\n".join([
        _NOTICE + "# Checks of Synapse's database\n",
        "`gold.state_integrity` has one row for each finding. The [runbook](../runbooks/integrity.md) describes the",
        "severities, the checks by hand and the repair. `lakehouse doctor --deep` prints the remedy. The column",
        '"can follow from" names other checks. A finding has no alert if one of these other checks has a finding in',
        "the same room. This other finding must have the severity `fail` or `warn`, or be acknowledged. If both checks",
        "are checks of indexes, the findings must be about the same index, in any room. A finding of severity `info`",
        "never has an alert.\n",
        *_table(
            ("check", "findings", "consequence", "harm", "alert", "can follow from"),
            [(*cells, ", ".join(f"`{cause}`" for cause in causes)) for *cells, causes in rows],
        ),
        "",
    ])  # fmt: skip


def synapse_releases_page() -> str:
    """Return the page of Synapse's releases, from :mod:`docs.synapse_releases`."""
    rows = _table(synapse_releases.COLUMNS, synapse_releases.list_rows())
    return "\n".join([_NOTICE + synapse_releases.INTRODUCTION, *rows, ""])


def layers_picture() -> str:
    """Return the layers of the import contract as a Mermaid flowchart, from entry points down to declarations."""
    contracts = tomllib.loads((PROJECT_FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (item["layers"] for item in contracts["contracts"] if item["type"] == "layers")
    boxes = [f'    l{i}["{re.sub(" [|:] ", " · ", layer)}"]' for i, layer in enumerate(layers)]
    arrows = [f"    l{i} --> l{i + 1}" for i in range(len(layers) - 1)]
    return "\n".join(["```mermaid", "flowchart TD", *boxes, *arrows, "```", ""])


def _commands(command: object, path: str) -> Iterator[tuple[str, TyperCommand]]:
    if isinstance(command, TyperGroup):
        for name, subcommand in command.commands.items():
            yield from _commands(subcommand, f"{path} {name}")
    elif isinstance(command, TyperCommand):
        yield path, command


def _tables(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    declared = yaml.safe_load(file.read_text(encoding="utf-8"))
    for source in declared.get("sources", []):
        for table in source["tables"]:
            yield f"{source['schema']}.{table['name']}", table
    folder = file.relative_to(MODELS).parts[0]
    for model in declared.get("models", []):
        if "columns" in model:
            yield f"{'silver' if folder == 'integrity' else folder}.{model['name']}", model


def _section(name: str, table: dict[str, Any], level: str = "###") -> list[str]:
    columns = table.get("columns", [])
    rows = [(f"`{item['name']}`", f"`{item['data_type']}`", _describe(item)) for item in columns]
    meta = (table.get("config") or {}).get("meta") or {}
    return [
        f"{level} `{name}`\n", _describe(table), "", *_table(("column", "type", "meaning"), rows), "",
        *_references(meta.get("references", [])),
    ]  # fmt: skip


def _references(references: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        (
            f"`{item['column']}`" + (f" of rows with `{item['rows']}`" if "rows" in item else ""),
            ", ".join([f"`{item['to']}`", *(f"`{copy}` = `{it}`" for copy, it in item.get("equal", {}).items())]),
            f"`{item['check']}` ({item['severity']}): {item['missing']}",
            " ".join(f"`{case.get('found_in') or case['event']}`: {case['why']}" for case in item.get("legal", [])),
        )
        for item in references
    ]
    return [*_table(("reference", "target", "check of a missing target", "allowed cases"), rows), ""] if rows else []


def _describe(entry: dict[str, Any]) -> str:
    texts = dict(
        re.findall(r"{% docs (\w+) %}\n(.*?)\n{% enddocs %}", (MODELS / "_columns.md").read_text("utf-8"), re.DOTALL)
    )
    text = re.sub(r"{{ doc\('(\w+)'\) }}", lambda match: texts[match[1]], entry.get("description", ""))
    return " ".join(text.split())


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [heads, ("---",) * len(heads), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _default(value: object) -> str:
    return "" if value in (None, "", {}, (), False) or callable(value) else f"`{getattr(value, 'value', value)}`"


def _escape(text: str) -> str:
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    for page, content in pages().items():
        page.write_text(content, encoding="utf-8")
