"""The Nexmark queries on fluxen and on Spark: queries.py holds their text, bench.py runs and checks them.

The streams come from datagen/nexmark.py; spark/nexmark.py makes views of them and starts the queries.
"""
