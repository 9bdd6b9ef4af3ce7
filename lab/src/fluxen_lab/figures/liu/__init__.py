"""What the figures of Liu-07 and Liu-05 share: the same system, the same streams, on real Spark.

The papers' hour is a few dozen micro-batches of event time, and their thresholds in megabytes become shares of the
state that the whole input makes (`Workload.state_bytes`): what matters is how much of it fits, not how wide a tuple is.
`fluxen_lab.figures.liu05` and `fluxen_lab.figures.liu07` name the figures.
"""
