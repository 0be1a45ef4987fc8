"""Run an object in a separate process, to measure its CPU time and memory."""

import multiprocessing
import traceback
from importlib import import_module
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self


class WorkerProcess:
    """Create ``module:class`` with ``arguments`` in a new process, and call its methods until the context ends.

    The class is given by name, so that only the worker imports its module.
    """

    def __init__(self, class_path: str, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, worker_pipe = context.Pipe()
        self._process = context.Process(target=_serve, args=(worker_pipe, class_path, arguments))
        self._process.start()

    @property
    def pid(self) -> int:
        """Process ID, the root of the process tree of the object."""
        assert self._process.pid is not None
        return self._process.pid

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method and return its result.

        :raises Exception: the exception of the method.
        """
        self._pipe.send((method, arguments))
        result, error = self._pipe.recv()
        if error is not None:
            raise error
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pipe.close()
        self._process.join()


def _serve(pipe: Connection, class_path: str, arguments: tuple[Any, ...]) -> None:
    module, _, name = class_path.partition(":")
    instance = getattr(import_module(module), name)(*arguments)
    while True:
        try:
            method, method_arguments = pipe.recv()
        except EOFError:
            break
        try:
            outcome: tuple[Any, Exception | None] = getattr(instance, method)(*method_arguments), None
        except Exception as error:  # noqa: BLE001 - the calling process raises it again
            error.add_note(traceback.format_exc())
            outcome = None, error
        pipe.send(outcome)
    instance.close()
