"""Selection of the Java for Spark, and the error without a suitable Java."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from synapse_lakehouse.java import runtime


def fake_java(folder: Path, version: str) -> Path:
    """Return a JAVA_HOME whose java reports ``version``."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_home_has_precedence_over_the_path(tmp_path: Path) -> None:
    expected, other_home = fake_java(tmp_path / "wanted", "17.0.15"), fake_java(tmp_path / "other", "21.0.1")
    assert runtime.find_java_home({"JAVA_HOME": str(expected), "PATH": str(other_home / "bin")}) == expected


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    old, good = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "good", "17.0.15")
    assert runtime.find_java_home({"JAVA_HOME": str(old), "PATH": str(good / "bin")}) == good


def test_without_java_the_message_names_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(runtime.JavaError, match=r"version 11.*apt-get install openjdk-17.*uv sync --extra jre"):
        runtime.find_java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)})


def test_the_wrapper_is_in_the_home_if_necessary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_mkdir = Path.mkdir

    def mkdir(path: Path, *arguments: Any, **options: Any) -> None:
        if path.is_relative_to(tmp_path / "package"):
            raise OSError(errno.EROFS, "Read-only file system")
        real_mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert runtime.create_java_wrapper(tmp_path / "package", tmp_path / "home") == tmp_path / "home"
    assert os.access(tmp_path / "home" / "bin" / "java", os.X_OK)
    with pytest.raises(runtime.JavaError, match="LAKEHOUSE_HOME"):
        runtime.create_java_wrapper(tmp_path / "package", tmp_path / "package" / "home")
