"""What large models are made of is found beside dbt, and handed over when their turn comes."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic

from dbt.contracts.graph.manifest import Manifest
from dbt_common.events.base_types import EventMsg
from pyspark.sql import SparkSession

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.dbt_build.incremental import Found, Increments


class Finding:
    """A callback of dbt.

    What a model is made of is looked for in a thread of its own as soon as that can be asked, while dbt and Spark build
    other models.

    ``project``: that dbt builds, which has each model's SQL when its turn comes.
    """

    project: Manifest | None = None

    def __init__(
        self,
        increments: Increments,
        spark: Callable[[], SparkSession],
        settings: Settings,
        branch: str,
        tell: Callable[[str], None],
    ) -> None:
        """``spark`` is asked for when something is handed over; it may still start."""
        self._increments, self._spark, self._settings, self._branch = increments, spark, settings, branch
        self._tell = tell
        # One after the other, as each look takes all cores and as much memory as Spark; what is made of it is little.
        self._pool = ThreadPoolExecutor(1)
        self._looks: dict[str, Future[Found | None]] = {}
        self._handed_over = set[str]()
        self._look_after("")

    def __call__(self, event: EventMsg) -> None:
        """Look for what can be asked when a model is built, and hand over what was found of one that begins."""
        if event.info.name == "NodeFinished" and event.data.run_result.status == "success":
            self._look_after(event.data.node_info.node_name)
        # dbt tells so when it has the SQL of a model, and of none that it skips.
        elif event.info.name == "NodeExecuting" and event.data.node_info.node_name in self._increments.names:
            self._hand_over(event.data.node_info.node_name, event.data.node_info.unique_id)

    def close(self) -> None:
        """Look for nothing any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look_after(self, built: str) -> None:
        for model in (one.model for one in self._increments.models):
            if (model.after or "") == built and model.name not in self._handed_over:
                self._look(model.name)

    def _look(self, model: str) -> Future[Found | None]:
        if model not in self._looks:
            self._looks[model] = self._pool.submit(self._increments.look, self._settings, self._branch, model)
        return self._looks[model]

    def _hand_over(self, model: str, node: str) -> None:
        started = monotonic()
        try:
            self._increments.forget(self._spark(), model)
            found = self._look(model).result()
            if found is not None:
                found = self._increments.make(self._settings, self._branch, model, found, self._sql(node))
            self._increments.hand(self._spark(), self._branch, model, found)
        except Exception as error:  # noqa: BLE001 - dbt would take it for a fault of the model.
            said = " ".join(str(error).split())[:300]
            self._tell(f"{model} is made of everything, because finding less failed: {said}")
        else:
            if found is not None:
                self._tell(f"{model}: {found.words}, waited for {monotonic() - started:.1f} s")
        # Spark has what was found.
        self._looks.pop(model, None)
        self._handed_over.add(model)

    def _sql(self, node: str) -> str:
        sql = self.project.nodes[node].compiled_code if self.project else None  # type: ignore[union-attr]
        if sql is None:
            raise ValueError(f"dbt has no SQL of {node}")
        return str(sql)
