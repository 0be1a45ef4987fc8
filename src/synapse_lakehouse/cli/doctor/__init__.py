"""``lakehouse doctor``: one module for each group of examinations."""
