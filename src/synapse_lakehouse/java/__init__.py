"""Find Java, the jars of Spark apps, and their class archive."""
