"""Maintenance of the lake's files: compaction, expired snapshots, orphan files, erasure scan."""
