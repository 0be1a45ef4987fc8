"""Java, Spark's jars and the class archive of this machine."""
