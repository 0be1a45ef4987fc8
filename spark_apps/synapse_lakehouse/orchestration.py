"""What the DAGs call: a run made from Airflow's context, its opening, its gates, its closing, its assets.

The only module of the package that imports Airflow. Whatever is heavy is imported when a task runs, not when a DAG
file is parsed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Asset, Context, RetryDecision, RetryPolicy, TriggerRule, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from synapse_lakehouse import catalogue
from synapse_lakehouse.compression.settings import CompressorSettings, configured
from synapse_lakehouse.run import Run
from synapse_lakehouse.settings import PROJECT, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog import Catalog

    from expectations.judgement import Judgement
    from synapse_lakehouse.alerts.incidents import Finding
    from synapse_lakehouse.lake.lease import Lease

log = logging.getLogger(__name__)

ARGUMENTS: Final = (
    "--run-id", "{{ lake_run_id(dag.dag_id, run_id) }}",
    "--start", "{{ data_interval_start.isoformat() }}",
    "--end", "{{ data_interval_end.isoformat() }}",
)  # fmt: skip
"""``Run.arguments()`` as templates."""

RELEASE: Final = Asset(name="release", uri="lakehouse://audit/releases", group="release")
"""Updated once by every published run: tables read at a release agree with each other."""


class UnlessExplained(RetryPolicy):
    """Retry a Spark app that broke, but not one that explained its refusal: it would only say so again."""

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Fail at once where a line of the app's output is an explanation (``error: …``)."""
        explained = any(line.startswith("error: ") for line in str(exception).splitlines())
        return RetryDecision.fail("the app said why it cannot work") if explained else RetryDecision.default()


def spark_app(
    app: str,
    title: str,
    task_id: str | None = None,
    pool: str = "default_pool",
    outlets: Sequence[Asset] = (),
    pre_execute: Callable[[Context], None] | None = None,
    on_success: Callable[[Context], None] | None = None,
    overrides: Mapping[str, str] | None = None,
    trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS,
) -> SparkSubmitOperator:
    """The task that runs ``spark_apps/<app>.py`` for this run, on the cluster of the connection ``spark_default``.

    The app reads its settings and passwords from the environment; nothing secret is in its command line.

    :param overrides: settings by their names in the environment that are other ones in this task, as templates.
    """
    return SparkSubmitOperator(
        task_id=task_id or app,
        task_display_name=title,
        application=str(PROJECT / "spark_apps" / f"{app}.py"),
        application_args=list(ARGUMENTS),
        name=f"lakehouse {app} {{{{ run_id }}}}",
        jars="{{ spark_jars() }}",
        driver_class_path="{{ spark_class_path() }}",
        conf={
            "spark.driver.memory": "{{ settings().lakehouse_driver_memory }}",
            "spark.driver.defaultJavaOptions": "{{ spark_java_options() }}",
            "spark.log.level": "{{ settings().lakehouse_log_level }}",
        },
        retries=2,
        retry_delay=timedelta(seconds=20),
        retry_policy=UnlessExplained(),
        pool=pool,
        outlets=outlets,
        pre_execute=pre_execute,
        on_success_callback=on_success,
        env_vars=dict(overrides or {}),
        trigger_rule=trigger_rule,
    )


def spark_jars() -> str:
    """The jars of every Spark app, comma separated; fetched if this machine does not have them."""
    return ",".join(map(str, _jars()))


def spark_class_path() -> str:
    """The same jars for the driver's own class path."""
    from synapse_lakehouse.embedded import class_archive

    return class_archive.class_path(_jars())


def spark_java_options() -> str:
    """Options of the driver's JVM."""
    from synapse_lakehouse.embedded import class_archive

    return class_archive.java_options(Settings(), _jars())


def _jars() -> list[Path]:
    from synapse_lakehouse.embedded import jars

    return jars.installed(Settings())


def lake_run_id(dag_id: str, run_id: str) -> str:
    """What the lake calls a run: as Airflow does, with the DAG's name for other DAGs than ``lakehouse``, since run ids
    are unique in a DAG only and two runs of one name would share a lease and a branch."""
    return run_id if dag_id == "lakehouse" else f"{dag_id} {run_id}"


MACROS: Final = {
    "lake_run_id": lake_run_id,
    "spark_jars": spark_jars,
    "spark_class_path": spark_class_path,
    "spark_java_options": spark_java_options,
    "settings": Settings,
}
"""What the templates of :func:`spark_app` call."""


def published_assets() -> list[Asset]:
    """One asset for each table that a run publishes, named by its table URI, and the release itself."""
    tables = [f"bronze/{table.name}" for table in catalogue.load().copied()]
    tables += [f"silver/{table.name}" for table in catalogue.resolved_state()]
    for schema in ("silver", "gold"):
        tables += sorted(f"{schema}/{model.stem}" for model in (PROJECT / "dbt" / "models" / schema).rglob("*.sql"))
    return [RELEASE, *(_asset(table) for table in tables)]


def _asset(table: str) -> Asset:
    return Asset(name=table.replace("/", "."), uri=f"lakehouse://{table}", group=table.partition("/")[0])


def run_of(context: Context) -> Run:
    """The run that a task belongs to.

    :raises AirflowFailException: when it has no data interval, as a manual run without a logical date.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None:
        raise AirflowFailException(
            "This run has no data interval, so it is not known what it shall cover. Trigger it with a logical date: "
            "it covers the last complete day before that date."
        )
    return Run(lake_run_id(context["dag"].dag_id, context["run_id"]), start, end)


def open_run() -> None:
    """Check that the run can succeed, then take the lake lease and start from a clean branch.

    :raises AirflowFailException: for a future interval, or a source that cannot be read as it is: nothing was touched.
    :raises LeaseError: when another run held the lease all the while; a retry waits for it again.
    """
    from synapse_lakehouse.source import connection, preflight
    from synapse_lakehouse.source.errors import SourceError

    run, settings = run_of(get_current_context()), Settings()
    try:
        run.refuse_the_future()
        with connection.connect(settings) as source:
            preflight.check(
                source,
                catalogue.load(),
                str(settings.synapse_server_name),
                may_be_partial=settings.lakehouse_on_drift == "partial",
            )
    except (ValueError, SourceError) as refusal:
        raise AirflowFailException(str(refusal)) from None
    _open(run, settings)


def open_maintenance() -> None:
    """Take the lake lease and start from a clean branch; the source may be away, as most of the work is the lake's.

    :raises AirflowFailException: for a future interval.
    :raises LeaseError: when another run held the lease all the while; a retry waits for it again.
    """
    run = run_of(get_current_context())
    try:
        run.refuse_the_future()
    except ValueError as refusal:
        raise AirflowFailException(str(refusal)) from None
    _open(run, Settings())


def _open(run: Run, settings: Settings) -> None:
    from synapse_lakehouse.lake import branches, tables
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog

    with closing(pyiceberg_catalog(settings)) as catalog:
        tables.ensure(catalog, catalogue.load())
        lease = _lease(run, catalog, settings)
        crashed = lease.acquire(settings.lakehouse_lease_wait_seconds)
        branches.drop(catalog, run.branch)
        if crashed:
            log.warning("%s crashed while it held the lake lease: going on from what it copied", crashed[-1])
            branches.take_over(catalog, crashed, run.branch)
            lease.settle()


def judge_bronze() -> None:
    """The gate between bronze and what is derived from it.

    :raises AirflowFailException: when a check that blocks publishing failed.
    """
    from expectations import gates

    _judge(gates.judge_bronze)


def judge_gold() -> None:
    """The gate between gold and its readers.

    :raises AirflowFailException: when a check that blocks publishing failed.
    """
    from expectations import gates

    _judge(gates.judge_gold)


def close_run() -> None:
    """Give the lake lease back, however the run went. A failed run's branch stays, to be looked at."""
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog

    run, settings = run_of(get_current_context()), Settings()
    with closing(pyiceberg_catalog(settings)) as catalog:
        _lease(run, catalog, settings).release()


def report_maintenance() -> None:
    """Say what was compared with the source, what that cost it, and what had to be mended."""
    from synapse_lakehouse.lake import audit
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog

    run = run_of(get_current_context())
    with closing(pyiceberg_catalog(Settings())) as catalog:
        slices, repairs = (audit.of_run(catalog, f"audit.{name}", run.run_id) for name in ("parity", "repairs"))
    for one in slices:
        outcome = "cut off" if one["differing"] is None else f"{one['differing']} of {one['ranges']} ranges differed"
        log.info(
            "%s, slice %s of %s: %s rows, %s, %.2f s", one["table_name"], one["slice"] + 1, one["slices"], one["rows"],
            outcome, one["seconds"],
        )  # fmt: skip
    for one in repairs:
        log.warning(
            "%s was mended: %s rows were missing, %s outdated, %s too many",
            one["table_name"], one["rows_added"], one["rows_changed"], one["rows_removed"],
        )  # fmt: skip


def watch_streams() -> None:
    """Look at every stream of the running Synapse, keep what was seen, and say what is behind.

    :raises AirflowFailException: when the source cannot be read as it is.
    :raises ReadFailed: when it is too busy to be watched; a retry may find it at rest.
    """
    from synapse_lakehouse.alerts.patrol import patrol
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog
    from synapse_lakehouse.source.errors import SourceError
    from synapse_lakehouse.streams.watch import sentence

    settings = Settings()
    try:
        with closing(pyiceberg_catalog(settings)) as catalog:
            looks, landed, wrong = patrol(settings, catalog)
    except SourceError as refusal:
        raise AirflowFailException(str(refusal)) from None
    _report(settings, "streams", wrong)
    for one in looks:
        log.info("%s", sentence(one))
    if landed:
        log.info("replication tap: last commit at %s", landed.isoformat(timespec="seconds"))


def preflight() -> None:
    """Say what Synapse would refuse at its next start, before somebody restarts it.

    :raises AirflowFailException: naming what does not fit, with the SQL that mends it, to be reviewed; it is never run.
    :raises SourceError: when the source cannot be read; a retry may find it at rest.
    """
    from synapse_lakehouse.alerts.incidents import Finding, Kind
    from synapse_lakehouse.source.connection import connect
    from synapse_lakehouse.streams import startup

    settings = Settings()
    with connect(settings) as source:
        wrong = list(startup.preflight(source, catalogue.load()))
    found = [Finding(Kind.SEQUENCE_BEHIND, f"stream {stream.name}", fault.message) for stream, fault in wrong]
    _report(settings, "preflight", found)
    if wrong:
        raise AirflowFailException(
            "Synapse's sequences do not fit its database. Review what mends it, and run it with all of Synapse "
            "stopped:\n" + "\n".join(f"  {fault.message}\n    {fault.repair}" for _, fault in wrong)
        )


def gate(title: str, judge: Callable[[], None]) -> object:
    """The task of a gate. It tells of what it finds wrong itself, so its failure is not told a second time."""
    return task(task_display_name=title, on_failure_callback=None)(judge)()


def tell_of_failure(context: Context) -> None:
    """Callback of a task that failed for good: its DAG's incident begins, unless it goes on already."""
    from synapse_lakehouse.alerts.incidents import Finding, Kind

    failed, dag_id = context["ti"], context["dag"].dag_id
    said = f"task {failed.task_id} of run {context['run_id']} failed; its log ends with the reason"
    _report(Settings(), f"dag {dag_id}", [Finding(Kind.RUN_FAILED, f"DAG {dag_id}", said)], failed.log_url)


def tell_of_success(context: Context) -> None:
    """Callback of the task that makes a run of a DAG good: the DAG's incident, if there is one, ends."""
    _report(Settings(), f"dag {context['dag'].dag_id}", [])


def _report(settings: Settings, scope: str, found: Sequence[Finding], page: str = "") -> None:
    from synapse_lakehouse.alerts.reporting import report
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog

    try:
        with closing(pyiceberg_catalog(settings)) as catalog:
            report(settings, catalog, scope, found, page)
    except Exception:
        # Whatever is the matter with the alerts, the data are not to suffer.
        log.warning("no alert could be sent", exc_info=True)


def compressor() -> CompressorSettings:
    """The settings of the state compressor.

    :raises CompressorError: on one that means nothing, which Airflow shows instead of the DAG.
    """
    return configured(Settings())


def unless_compressor_is_off(context: Context) -> None:
    """Skip a run of the state compressor unless its settings turn it on."""
    if not compressor().enabled:
        raise AirflowSkipException(
            "The state compressor is off, so nothing is planned and nothing is written. It is turned on by "
            "LAKEHOUSE_COMPRESSOR_ENABLED=true, or by enabled: true under state_compressor in SYNAPSE_CONFIG."
        )


def ask_for_approval() -> str:
    """What the plan of this run would come to, for the person who approves it: Markdown.

    :raises AirflowSkipException: when there is nothing to compress.
    """
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog
    from synapse_lakehouse.rewriting.asking import question
    from synapse_lakehouse.rewriting.carrying_out import planned_by

    run, settings = run_of(get_current_context()), Settings()
    with closing(pyiceberg_catalog(settings)) as catalog:
        planned = planned_by(catalog, run)
    rows, skipped = ([row for row in planned if row[name]] for name in ("groups_to_rewrite", "skipped"))
    for row in skipped:
        log.warning("%s is left as it is: %s", row["room_id"], row["skipped"])
    if not rows:
        raise AirflowSkipException("There is nothing to compress: no room that was planned would take fewer rows.")
    return question(rows, skipped, may_write=settings.synapse_write_dsn is not None)


class Approval(ApprovalOperator):
    """Asks a person, unless the compressor's settings say that nobody needs to be asked."""

    def execute(self, context: Context) -> Any:
        """Wait for an answer, or approve at once."""
        if compressor().apply:
            log.info("approved by LAKEHOUSE_COMPRESSOR_APPLY, or apply under state_compressor in SYNAPSE_CONFIG")
            return None
        return super().execute(context)


def apply_compression() -> None:
    """Compress the rooms of Synapse's database as this run planned it; each is recorded as soon as it is done.

    :raises AirflowFailException: when trying again would not help.
    :raises CompressorError, SourceError: when it stopped; a retry goes on from there.
    """
    from synapse_lakehouse.compression.errors import CompressorError
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog
    from synapse_lakehouse.rewriting.carrying_out import carry_out
    from synapse_lakehouse.rewriting.connection import write_dsn
    from synapse_lakehouse.rewriting.errors import AnotherCompressor, Differs

    run, settings = run_of(get_current_context()), Settings()
    try:
        write_dsn(settings)
    except CompressorError as refusal:
        raise AirflowFailException(str(refusal)) from None
    with closing(pyiceberg_catalog(settings)) as catalog:
        try:
            carry_out(settings, catalog, run, lambda line: log.info("%s", line))
        except (AnotherCompressor, Differs) as refusal:
            raise AirflowFailException(str(refusal)) from None


def verify_compression() -> None:
    """Read every room that this run compressed once more, and compare it with what it was.

    :raises AirflowFailException: naming what is wrong.
    """
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog
    from synapse_lakehouse.rewriting.carrying_out import verify

    run, settings = run_of(get_current_context()), Settings()
    with closing(pyiceberg_catalog(settings)) as catalog:
        found = verify(settings, catalog, run)
    for one in found:
        log.info(
            "%s: %s state groups in %s rows, %s", one.room_id, one.groups, one.rows, "; ".join(one.faults) or "right"
        )
    if wrong := [one for one in found if one.faults]:
        raise AirflowFailException(
            "Rooms are not as they should be; their undo files are named in audit.compression_runs:\n"
            + "\n".join(f"  {one.room_id}: {'; '.join(one.faults)}" for one in wrong)
        )


def unless_rehearsal(context: Context) -> None:
    """Stop before publishing when the run was only to be tried."""
    if context["params"]["rehearse"]:
        raise AirflowSkipException("This was a rehearsal: all checks passed, nothing is published.")


def _judge(gate: Callable[[Settings, Catalog, Run], Judgement]) -> None:
    from expectations.findings import findings
    from expectations.judgement import AuditFailed
    from synapse_lakehouse.lake.catalog import pyiceberg_catalog

    context = get_current_context()
    run, settings = run_of(context), Settings()
    with closing(pyiceberg_catalog(settings)) as catalog, _lease(run, catalog, settings).kept():
        judgement = gate(settings, catalog, run)
    _report(settings, judgement.stage, findings(judgement), judgement.data_docs)
    log.info("%s", judgement.summary())
    try:
        judgement.raise_if_failed()
    except AuditFailed as failure:
        raise AirflowFailException(str(failure)) from None
    if judgement.warnings and context["params"]["fail_on_warnings"]:
        raise AirflowFailException(
            f"The audit of {judgement.stage} has {judgement.warned} warnings and this run was started to fail on any, "
            "so nothing is published:\n" + "\n".join(f"  {check.sentence}" for check in judgement.warnings)
        )


def _lease(run: Run, catalog: Catalog, settings: Settings) -> Lease:
    from synapse_lakehouse.lake.lease import Lease

    return Lease(catalog, holder=run.run_id, branch=run.branch, seconds=settings.lakehouse_lease_seconds)
