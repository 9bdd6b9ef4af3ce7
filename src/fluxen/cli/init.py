"""`fluxen init DIR`: a commented query file and a little input for it, ready for `fluxen run`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fluxen.cli.offers import Offers, write_offers
from fluxen.errors import ConfigError

__all__ = ["add_parser", "run"]

_INPUT = Offers(rows=6_000, batches=4)
_QUERY = """\
# A query for `fluxen run`: offers of three banks joined, then the lowest price of each broker.
# Paths are relative to this file.

name = "cheapest-brokers"

# [session]                             # a cluster instead of this machine, and Spark's own settings
# master = "spark://host:7077"
# settings = { "spark.executor.memory" = "4g" }

[sources.bank1]                         # any streaming source of Spark
format = "parquet"                      # the default
path = "offers/bank1"
options = { maxFilesPerTrigger = 1 }    # a file per micro-batch
# schema = "currency string, ..."       # where the files do not tell, such as csv and json

[sources.bank2]
path = "offers/bank2"
options = { maxFilesPerTrigger = 1 }

[sources.bank3]
path = "offers/bank3"
options = { maxFilesPerTrigger = 1 }

[join]
on = ["currency", "offer"]
time = "ts"                             # the event time
within = "60 seconds"                   # the latest less the earliest of three that match
lateness = "0 seconds"                  # how far rows may be out of order

[aggregate]                             # over the join's results; without [join], over the only source
by = "bank1_broker"
values = { cheapest = "min(bank1_price)", matches = "count()" }
# window = "1 minute"                   # one result per window instead of running values; needs time

[adapt]
sites = 2                               # parallel instances; as many as there are cores if left out
policy = "flux-load"                    # moves partition groups from busy sites to idle ones
# memory_per_site = "512m"              # with a policy such as "lazy-disk": what does not fit goes to disk

[sink]
format = "parquet"
path = "cheapest"
checkpoint = "checkpoint"               # state and progress; a directory of this query alone

[trigger]
availableNow = true                     # to the end of the input; processingTime = "5 seconds" for ever
"""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "init",
        help="write a commented query file with some input",
        description="Write DIR/query.toml, a commented example, and a little input for it. Nothing is overwritten.",
    )
    parser.add_argument("directory", metavar="DIR", help="where to write; it is made if it is not there")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    directory = Path(args.directory)
    taken = next((path for path in (directory / "query.toml", directory / "offers") if path.exists()), None)
    if taken is not None:
        raise ConfigError(f"{taken} is there already and is not overwritten; name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        rows = write_offers(_INPUT, directory / "offers")
        (directory / "query.toml").write_text(_QUERY)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be written: {error.strerror}") from error
    print(f"wrote {directory / 'query.toml'} and {rows:,} offers to read; try: fluxen run {directory / 'query.toml'}")
    return 0
