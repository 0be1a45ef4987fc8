"""An object that lives in a process of its own, so that what it costs can be told apart."""

import multiprocessing
import traceback
from importlib import import_module
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self


class Worker:
    """Calls methods of ``make(*arguments)`` in a new process, which stays warm until the context ends.

    ``make`` is named as ``module:class``, so that no process loads what another one needs.
    """

    def __init__(self, make: str, *arguments: Any) -> None:
        fork_free = multiprocessing.get_context("spawn")
        self._pipe, theirs = fork_free.Pipe()
        self._process = fork_free.Process(target=_serve, args=(theirs, make, arguments))
        self._process.start()

    @property
    def pid(self) -> int:
        """Process id: the root of everything that the object starts."""
        assert self._process.pid is not None
        return self._process.pid

    def call(self, method: str, *arguments: Any) -> Any:
        """The result of a method.

        :raises Exception: what the method raised.
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


def _serve(pipe: Connection, make: str, arguments: tuple[Any, ...]) -> None:
    module, _, name = make.partition(":")
    served = getattr(import_module(module), name)(*arguments)
    while True:
        try:
            method, given = pipe.recv()
        except EOFError:
            break
        try:
            answer: tuple[Any, Exception | None] = getattr(served, method)(*given), None
        except Exception as error:  # noqa: BLE001 - it is raised again by the caller, in the other process
            error.add_note(traceback.format_exc())
            answer = None, error
        pipe.send(answer)
    served.close()
