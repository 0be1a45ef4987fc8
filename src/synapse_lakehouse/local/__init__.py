"""What runs on this machine when no service is configured: PostgreSQL from a wheel, Java, Spark's jars, the sample."""
