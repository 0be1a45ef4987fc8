"""Commands that compare releases and write the page of the lakehouse."""
