"""The lakehouse of a Synapse homeserver: what the Spark apps, the DAGs and the ``lakehouse`` command share."""
