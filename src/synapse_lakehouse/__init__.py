"""The lakehouse of a Synapse homeserver: code of the Spark apps, the DAGs and the ``lakehouse`` command."""
