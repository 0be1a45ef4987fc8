"""The files with the rows of a table, and their sizes."""

from dataclasses import dataclass
from typing import Final

from synapse_lakehouse.catalogue import Table
from synapse_lakehouse.postgres.connection import Connection
from synapse_lakehouse.postgres.rows.page_ranges import PageRange

_HEAP: Final = """
select coalesce(array_agg(filenode order by file::oid), '{}'), coalesce(sum(pages), 0)::bigint, coalesce(max(pages), 0)
from to_regclass(%s) as parent,
  lateral (select parent as file union select relid from pg_partition_tree(parent)) as files,
  lateral (select pg_relation_filenode(file)::bigint as filenode) as nodes,
  lateral (select pg_relation_size(file) / current_setting('block_size')::int as pages) as sizes
where filenode is not null
"""
"""The parameter is the name of a table. A partitioned table itself has no file, so its filenode is NULL."""


@dataclass(frozen=True)
class Heap:
    """The file of a table's rows; of a partitioned table, the files of all partitions.

    * ``filenodes``: numbers of the files. A rewritten table has other numbers.
    * ``pages``: size of all files. ``largest_file_pages``: size of the largest file. Each file has its own page
      numbers, so a range of pages is read from each file.
    """

    filenodes: list[int]
    pages: int
    largest_file_pages: int

    @property
    def has_unique_ctids(self) -> bool:
        """Whether a ctid identifies a row. Rows of several partitions may have the same ctid."""
        return self.pages == self.largest_file_pages

    def count_pages(self, part: PageRange) -> int:
        """Return the number of pages in ``part``, as if all files were equally long; at least 1."""
        first, last = part
        pages = max((self.largest_file_pages if last is None else last) - first, 1)
        return max(1, pages * self.pages // self.largest_file_pages) if self.pages else pages


def read_heap(connection: Connection, table: Table) -> Heap:
    """Return the heap of ``table``."""
    row = connection.execute(_HEAP.encode(), [table.name]).fetchone()
    assert row is not None
    return Heap(*row)
