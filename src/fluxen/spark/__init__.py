"""The runtime on Spark: everything that imports pyspark."""
