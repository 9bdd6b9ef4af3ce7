"""`make soak`: a compressed month. Does anything grow in a query that runs for weeks?

queries.py says what runs and over which rows, local.py runs it in one process, ../spark/soak.py on Spark; both write a
line of samples.py every few batches. __main__.py runs them one after the other, each in a process of its own, and
verdict.py compares the second quarter of each run with its last.
"""
