"""Commands that compare releases, and write a page about the lakehouse."""
