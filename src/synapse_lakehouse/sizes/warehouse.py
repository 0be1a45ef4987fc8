"""Measure the warehouse of the lake."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from synapse_lakehouse.config.settings import Settings


def measure_warehouse(settings: Settings, catalog: Catalog) -> tuple[int, int | None]:
    """Return the bytes of all files below the warehouse, and the free bytes of its file system (None on S3)."""
    uri = urlsplit(settings.warehouse)
    if uri.scheme == "file":
        folder = Path(uri.path)
        return sum(_list_sizes(folder)), shutil.disk_usage(folder).free
    place = PyArrowFileIO(catalog.properties).fs_by_scheme(uri.scheme, uri.netloc)
    files = place.get_file_info(FileSelector(f"{uri.netloc}{uri.path}", recursive=True, allow_not_found=True))
    return sum(file.size or 0 for file in files), None


def _list_sizes(folder: Path) -> Iterator[int]:
    """Yield the sizes of all files. Files that another process deletes meanwhile count for nothing."""
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(f"{root}/{name}").st_size
            except FileNotFoundError:
                continue
