"""Compressing state: what is planned is shown to a person, then carried out and verified."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context, get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from synapse_lakehouse.compressor.settings import CompressorSettings, load_compressor_settings
from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.orchestration.run_lifecycle import get_run
from synapse_lakehouse.printable_text import get_printable_logger, to_printable

log = get_printable_logger(__name__)

_SHOWN = "planned_at"


def compressor_settings() -> CompressorSettings:
    """The settings of the state compressor.

    :raises CompressorError: on one that means nothing, which Airflow shows instead of the DAG.
    """
    return load_compressor_settings(Settings())


def skip_if_disabled(context: Context) -> None:
    """Skip a run of the state compressor unless its settings turn it on."""
    if not compressor_settings().enabled:
        raise AirflowSkipException(
            "The state compressor is off, so nothing is planned and nothing is written. It is turned on by "
            "LAKEHOUSE_COMPRESSOR_ENABLED=true, or by enabled: true under state_compressor in SYNAPSE_CONFIG."
        )


def describe_plan_for_approval() -> str:
    """What the plan of this run would come to, for the person who approves it: Markdown.

    :raises AirflowSkipException: when there is nothing to compress.
    """
    from synapse_lakehouse.compressor.apply import plan_timestamp, read_plan
    from synapse_lakehouse.compressor.approval import describe_plan
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    context = get_current_context()
    run, settings = get_run(context), Settings()
    with closing(open_catalog(settings)) as catalog:
        planned = read_plan(catalog, run)
    rows, skipped = ([row for row in planned if row[name]] for name in ("groups_to_rewrite", "skipped"))
    for row in skipped:
        log.warning("%s is left as it is: %s", row["room_id"], row["skipped"])
    if not rows:
        raise AirflowSkipException("There is nothing to compress: no room that was planned would take fewer rows.")
    context["ti"].xcom_push(key=_SHOWN, value=plan_timestamp(planned))
    return describe_plan(rows, skipped, may_write=settings.synapse_write_dsn is not None)


class CompressionApprovalOperator(ApprovalOperator):
    """Asks a person, unless the compressor's settings say that nobody needs to be asked."""

    def execute(self, context: Context) -> Any:
        """Wait for an answer, or approve at once."""
        if compressor_settings().apply:
            log.info("approved by LAKEHOUSE_COMPRESSOR_APPLY, or apply under state_compressor in SYNAPSE_CONFIG")
            return None
        return super().execute(context)


def apply_compression() -> None:
    """Compress the rooms of Synapse's database as this run planned it; each is recorded as soon as it is done.

    :raises AirflowFailException: when trying again would not help.
    :raises CompressorError, SourceError: when it stopped; a retry goes on from there.
    """
    from synapse_lakehouse.compressor.algorithm.errors import CompressorError
    from synapse_lakehouse.compressor.apply import apply_plan
    from synapse_lakehouse.compressor.errors import CompressorRunningError, NotApprovedError, VerificationError
    from synapse_lakehouse.compressor.postgres.connection import require_write_dsn
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    context = get_current_context()
    run, settings = get_run(context), Settings()
    try:
        require_write_dsn(settings)
    except CompressorError as refusal:
        raise AirflowFailException(str(refusal)) from None
    shown = context["ti"].xcom_pull(task_ids="show_plan", key=_SHOWN)
    with closing(open_catalog(settings)) as catalog:
        try:
            apply_plan(settings, catalog, run, lambda line: log.info("%s", line), shown)
        except (CompressorRunningError, VerificationError, NotApprovedError) as refusal:
            raise AirflowFailException(str(refusal)) from None


def verify_compression() -> None:
    """Read every room that this run compressed once more, and compare it with what it was.

    :raises AirflowFailException: naming what is wrong.
    """
    from synapse_lakehouse.compressor.apply import verify_run
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    run, settings = get_run(get_current_context()), Settings()
    with closing(open_catalog(settings)) as catalog:
        found = verify_run(settings, catalog, run)
    for one in found:
        log.info(
            "%s: %s state groups in %s rows, %s", one.room_id, one.groups, one.rows, "; ".join(one.faults) or "right"
        )
    if wrong := [one for one in found if one.faults]:
        raise AirflowFailException(
            "Rooms are not as they should be; their undo files are named in audit.compression_runs:\n"
            + "\n".join(to_printable(f"  {one.room_id}: {'; '.join(one.faults)}") for one in wrong)
            + "\nPut back those that resolve to another state (`lakehouse compress undo --repair --yes FILE`), bring "
            "back files that are gone, then clear this task."
        )
