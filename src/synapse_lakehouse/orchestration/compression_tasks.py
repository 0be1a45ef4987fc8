"""Tasks of the state compressor: show the plan, ask for approval, apply, verify."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context, get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from synapse_lakehouse.compressor.settings import load_compressor_settings
from synapse_lakehouse.orchestration.dag_homeservers import load_task_settings
from synapse_lakehouse.orchestration.run_lifecycle import get_run
from synapse_lakehouse.printable_text import get_printable_logger, to_printable

log = get_printable_logger(__name__)

_PLANNED_AT_KEY = "planned_at"


def skip_if_disabled(context: Context) -> None:
    """Skip the run unless the compressor is enabled."""
    if not load_compressor_settings(load_task_settings(context["dag"].dag_id)).enabled:
        raise AirflowSkipException(
            "The state compressor is disabled, so nothing is planned or written. To enable it, set "
            "LAKEHOUSE_COMPRESSOR_ENABLED=true, or enabled: true under state_compressor in SYNAPSE_CONFIG."
        )


def describe_plan_for_approval() -> str:
    """Return the plan of this run as Markdown, for the approver.

    :raises AirflowSkipException: when there is nothing to compress.
    """
    from synapse_lakehouse.compressor.apply import plan_timestamp, read_plan
    from synapse_lakehouse.compressor.approval_text import describe_plan
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    context = get_current_context()
    run, settings = get_run(context), load_task_settings(context["dag"].dag_id)
    with closing(open_catalog(settings)) as catalog:
        planned = read_plan(catalog, run)
    rows, skipped = ([row for row in planned if row[name]] for name in ("groups_to_rewrite", "skipped"))
    for row in skipped:
        log.warning("skipped %s: %s", row["room_id"], row["skipped"])
    if not rows:
        raise AirflowSkipException("There is nothing to compress: no planned room would have fewer rows.")
    context["ti"].xcom_push(key=_PLANNED_AT_KEY, value=plan_timestamp(planned))
    return describe_plan(rows, skipped, may_write=settings.synapse_write_dsn is not None)


class CompressionApprovalOperator(ApprovalOperator):
    """Waits for an approval, unless the settings approve all plans."""

    def execute(self, context: Context) -> Any:
        """Wait for the approval, or approve at once."""
        if load_compressor_settings(load_task_settings(self.dag_id)).apply:
            log.info(
                "The plan is approved by a setting: LAKEHOUSE_COMPRESSOR_APPLY, or the key `apply` of "
                "`state_compressor` in SYNAPSE_CONFIG."
            )
            return None
        return super().execute(context)


def apply_compression() -> None:
    """Apply the plan of this run to Synapse's database, and record each finished room.

    :raises AirflowFailException: when a retry would not help.
    :raises CompressorError, SourceError: when the work stopped early; a retry continues the work.
    """
    from synapse_lakehouse.compressor.algorithm.errors import CompressorError
    from synapse_lakehouse.compressor.apply import apply_plan
    from synapse_lakehouse.compressor.errors import CompressorRunningError, NotApprovedError, VerificationError
    from synapse_lakehouse.compressor.postgres.connection import require_write_dsn
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    context = get_current_context()
    run, settings = get_run(context), load_task_settings(context["dag"].dag_id)
    try:
        require_write_dsn(settings)
    except CompressorError as refusal:
        raise AirflowFailException(str(refusal)) from None
    shown = context["ti"].xcom_pull(task_ids="show_plan", key=_PLANNED_AT_KEY)
    with closing(open_catalog(settings)) as catalog:
        try:
            apply_plan(settings, catalog, run, lambda line: log.info("%s", line), shown)
        except (CompressorRunningError, VerificationError, NotApprovedError) as refusal:
            raise AirflowFailException(str(refusal)) from None


def verify_compression() -> None:
    """Compare each room that this run compressed with its undo files.

    :raises AirflowFailException: when a room has faults; the message lists the faults.
    """
    from synapse_lakehouse.compressor.apply import verify_run
    from synapse_lakehouse.iceberg.catalog.catalog import open_catalog

    context = get_current_context()
    run, settings = get_run(context), load_task_settings(context["dag"].dag_id)
    with closing(open_catalog(settings)) as catalog:
        verifications = verify_run(settings, catalog, run)
    for verification in verifications:
        log.info(
            "%s: %s state groups in %s rows, %s",
            verification.room_id,
            verification.groups,
            verification.rows,
            "; ".join(verification.faults) or "correct",
        )
    if faulty := [verification for verification in verifications if verification.faults]:
        raise AirflowFailException(
            "Some rooms have faults. The table audit.compression_runs names the undo files of each room:\n"
            + "\n".join(to_printable(f"  {room.room_id}: {'; '.join(room.faults)}") for room in faulty)
            + "\nRestore rooms whose states changed (`lakehouse compress undo --repair --yes FILE`), bring back "
            "missing undo files, then clear this task."
        )
