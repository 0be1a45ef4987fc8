"""Run small examples of the other apps' queries, so that the JVM archives the classes that these queries need."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from synapse_lakehouse.config.settings import Settings
from synapse_lakehouse.iceberg.spark import spark_network

if __name__ == "__main__":
    spark = (
        SparkSession.builder.config(map={**spark_network.get_network_properties("local[1]", Settings(_env_file=None))})
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.defaultCatalog", "lake")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.catalog-impl", "org.apache.iceberg.inmemory.InMemoryCatalog")
        .getOrCreate()
    )
    spark._jvm.java.lang.Class.forName("org.apache.iceberg.jdbc.JdbcCatalog")  # type: ignore[union-attr]
    spark._jvm.java.lang.Class.forName("org.postgresql.Driver")  # type: ignore[union-attr]
    spark.sql("create schema bronze")
    spark.sql("create table bronze.events (event_id string, room_id string, stream_ordering bigint, outlier boolean)")
    spark.sql("insert into bronze.events select concat('$', id), concat('!', id % 7), id, id % 5 = 0 from range(1000)")
    events = spark.table("bronze.events")
    by_room = events.groupBy("room_id").agg(f.count_distinct("event_id").alias("events"), f.max("stream_ordering"))
    by_room.join(events, "room_id", "left").unionAll(by_room.join(events, "room_id", "left")).toArrow()
    spark.sql(
        "select *, row_number() over (partition by room_id order by stream_ordering) as n,"
        " get_json_object('{}', '$.a') as a from bronze.events order by n"
    ).collect()
    spark.sql("insert into bronze.events replace where true select * from bronze.events")
    spark.sparkContext.parallelize([1], 1).map(str).collect()
    spark.stop()
