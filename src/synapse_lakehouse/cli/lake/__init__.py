"""Commands on the lake: query, releases, branches, connect."""
