"""A Prometheus server that scrapes given metrics, and a node_exporter that serves metrics from files."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode
from urllib.request import urlopen

from synapse_lakehouse.config.settings import PROJECT_FOLDER
from synapse_lakehouse.local.postgres.embedded_postgres import find_free_port

Query = Callable[[str], list[dict[str, Any]]]
Result = TypeVar("Result")


@contextmanager
def prometheus(metrics: str, folder: Path) -> Iterator[Query]:
    """Run Prometheus with the project's rules; yield a function that returns the result of an instant query."""
    port = find_free_port()
    with _serve(metrics) as target:
        rules = PROJECT_FOLDER / "docker" / "monitoring" / "alerts.yaml"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "lakehouse", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.yaml").write_text(json.dumps(config))
        process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:

            def query(expression: str) -> list[dict[str, Any]]:
                with urlopen(f"http://127.0.0.1:{port}/api/v1/query?{urlencode({'query': expression})}") as response:
                    result: list[dict[str, Any]] = json.load(response)["data"]["result"]
                    return result

            _await(lambda: query("synapse_lakehouse_release_number"))
            yield query
        finally:
            process.terminate()
            process.wait(30)


def read_textfiles(folder: Path) -> str:
    """Return the metrics that node_exporter serves from the files in ``folder``."""
    port = find_free_port()
    arguments = ["--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}"]
    process = subprocess.Popen(
        ["prometheus-node-exporter", *arguments, f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:

        def read() -> str:
            with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                return str(response.read(), "utf-8")

        return _await(read)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _serve(metrics: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(metrics.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def _await(condition: Callable[[], Result]) -> Result:
    """Call ``condition`` until its result is not empty; return that result."""
    end = time.monotonic() + 60
    while True:
        try:
            if result := condition():
                return result
        except OSError:
            pass
        assert time.monotonic() < end, "Prometheus scraped nothing"
        time.sleep(0.2)
