"""B-tree indexes of the copied tables: which entries they have, and whether the entries match the heap."""
