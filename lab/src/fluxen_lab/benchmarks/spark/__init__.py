"""The part of the benchmarks that imports pyspark: it runs only inside the processes runner.py starts."""
