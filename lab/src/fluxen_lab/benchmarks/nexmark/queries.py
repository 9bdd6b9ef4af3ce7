"""The Nexmark queries as Spark SQL over the views person, auction, bid and side_input, and the same for DuckDB.

Where a query's text says the same to both it is there once. Results that the suite leaves without a time have the start
of their window here, so that those still open at the end can be told from missing ones; and rows are ranked by time
where their prices are equal, so that there is one right answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fluxen_lab.benchmarks.compare import Column, Kind

__all__ = ["MACROS", "QUERIES", "NexmarkQuery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NexmarkQuery:
    """One query. `oracle` is DuckDB's text where the dialects differ, `mode` what Spark must be told."""

    sql: str
    columns: tuple[Column, ...]
    streams: tuple[str, ...]
    oracle: str = ""
    mode: Literal["append", "update"] = "append"
    key: tuple[str, ...] = ()
    """results of an updating query: the last row of each key counts"""
    closed: str = "true"
    """a condition on results in DuckDB; `{end}` is the time up to which everything is owed, in microseconds"""
    summed: str = ""
    """a query over `results`, where not all of them can be the same in two runs"""

    @property
    def expected(self) -> str:
        return self.oracle or self.sql


def _query(sql: str, kinds: str, streams: str = "bid", **more: object) -> NexmarkQuery:
    """`kinds` are the results' columns as `name:kind`, kinds by their first letter."""
    words: dict[str, Kind] = {"i": "int", "t": "time", "s": "text", "f": "float"}
    columns = [part.split(":") for part in kinds.split()]
    return NexmarkQuery(
        sql=sql,
        columns=tuple(Column(name=name, kind=words[kind]) for name, kind in columns),
        streams=tuple(streams.split()),
        **more,  # type: ignore[arg-type]
    )


MACROS = (
    "CREATE OR REPLACE MACRO date_format(t, f) AS strftime(t, replace(replace(replace(replace(replace("
    "f, 'yyyy', '%Y'), 'MM', '%m'), 'dd', '%d'), 'HH', '%H'), 'mm', '%M'))",
    "CREATE OR REPLACE MACRO tumble(t, w) AS epoch_us(t) - epoch_us(t) % (w * 1000000)",
)
"""functions of Spark's that DuckDB has under other names"""

_BID = "auction:i bidder:i price:i dateTime:t extra:s"
_WIDE_BID = "auction:i bidder:i price:i channel:s url:s dateTime:t extra:s"
_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_WINNING = "A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"


def _ranked(what: str, name: str, plain: str) -> str:
    """An aggregate over all bids and over three ranges of prices."""
    parts = [f"{what} FILTER (WHERE {rank}) AS rank{at}_{name}" for at, rank in enumerate(_RANKS, 1)]
    return ", ".join([f"{what} AS {plain}", *parts])


_COUNTS = ", ".join(
    [
        _ranked("count(*)", "bids", "total_bids"),
        _ranked("count(DISTINCT bidder)", "bidders", "total_bidders"),
        _ranked("count(DISTINCT auction)", "auctions", "total_auctions"),
    ]
)
_COUNT_COLUMNS = " ".join(
    f"{prefix}_{name}:i" for name in ("bids", "bidders", "auctions") for prefix in ("total", "rank1", "rank2", "rank3")
)
_DAY = "date_format(dateTime, 'yyyy-MM-dd')"

_STATELESS: dict[str, NexmarkQuery] = {
    "q0": _query("SELECT auction, bidder, price, dateTime, extra FROM bid", _BID),
    "q1": _query(
        "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
        "auction:i bidder:i price:f dateTime:t extra:s",
    ),
    "q2": _query("SELECT auction, price FROM bid WHERE mod(auction, 123) = 0", "auction:i price:i"),
    "q10": _query(
        f"""SELECT auction, bidder, price, dateTime, extra, {_DAY} AS day, date_format(dateTime, 'HH:mm') AS minute
           FROM bid""",
        f"{_BID} day:s minute:s",
    ),
    "q13": _query(
        """SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
           FROM bid B JOIN side_input S ON mod(B.auction, 10000) = S.key""",
        "auction:i bidder:i price:i dateTime:t value:s",
    ),
    "q14": _query(
        """SELECT auction, bidder, 0.908 * price AS price,
           CASE WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
           dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
           FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
        "auction:i bidder:i price:f bidTimeType:s dateTime:t extra:s c_counts:i",
    ),
    "q21": _query(
        """SELECT auction, bidder, price, channel,
           CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
                WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
                ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
           FROM bid WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
           OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
        "auction:i bidder:i price:i channel:s channel_id:s",
    ),
    "q22": _query(
        """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
           split_part(url, '/', 6) AS dir3 FROM bid""",
        "auction:i bidder:i price:i channel:s dir1:s dir2:s dir3:s",
    ),
}
_JOINS: dict[str, NexmarkQuery] = {
    "q3": _query(
        """SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
           WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""",
        "name:s city:s state:s id:i",
        "auction person",
    ),
    "q4": _query(
        f"""SELECT Q.category, avg(Q.final) AS price FROM
           (SELECT max(B.price) AS final, A.category FROM auction A, bid B WHERE {_WINNING} GROUP BY A.id, A.category) Q
           GROUP BY Q.category""",
        "category:i price:f",
        "auction bid",
        mode="update",
        key=("category",),
    ),
    "q6": _query(
        f"""SELECT Q.id, Q.seller, avg(Q.price) OVER
           (PARTITION BY Q.seller ORDER BY Q.dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price FROM
           (SELECT A.id, A.seller, B.price, B.dateTime,
            row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime) AS place
            FROM auction A, bid B WHERE {_WINNING}) Q WHERE Q.place = 1""",
        "id:i seller:i price:f",
        "auction bid",
        mode="update",
        key=("id",),
    ),
    "q9": _query(
        f"""SELECT id, itemName, seller, category, expires, auction, bidder, price, bidTime FROM
           (SELECT A.id, A.itemName, A.seller, A.category, A.expires, B.auction, B.bidder, B.price,
            B.dateTime AS bidTime, row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime) AS place
            FROM auction A, bid B WHERE {_WINNING}) WHERE place <= 1""",
        "id:i itemName:s seller:i category:i expires:t auction:i bidder:i price:i bidTime:t",
        "auction bid",
        mode="update",
        key=("id",),
    ),
    "q20": _query(
        """SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bidTime, A.itemName, A.seller, A.expires
           FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
        "auction:i bidder:i price:i channel:s url:s bidTime:t itemName:s seller:i expires:t",
        "auction bid",
    ),
}
_HOPS = """(SELECT auction, count(*) AS num, start FROM (SELECT auction, unnest([tumble(dateTime, 2),
    tumble(dateTime, 2) - 2000000, tumble(dateTime, 2) - 4000000, tumble(dateTime, 2) - 6000000,
    tumble(dateTime, 2) - 8000000]) AS start FROM bid) GROUP BY auction, start)"""
_HOPPING = """(SELECT auction, count(*) AS num, window(dateTime, '10 seconds', '2 seconds') AS w FROM bid
    GROUP BY auction, window(dateTime, '10 seconds', '2 seconds'))"""
_WINDOWS: dict[str, NexmarkQuery] = {
    "q5": _query(
        f"""SELECT X.auction, X.num, X.w.start AS starttime FROM {_HOPPING} X
           JOIN (SELECT max(num) AS maxn, w FROM {_HOPPING} GROUP BY w) Y ON X.w = Y.w AND X.num >= Y.maxn""",
        "auction:i num:i starttime:t",
        oracle=f"""SELECT X.auction, X.num, make_timestamp(X.start) AS starttime FROM {_HOPS} X
           JOIN (SELECT max(num) AS maxn, start FROM {_HOPS} GROUP BY start) Y
           ON X.start = Y.start AND X.num >= Y.maxn""",
        closed="starttime + 10000000 <= {end}",
    ),
    "q7": _query(
        """SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B
           JOIN (SELECT max(price) AS maxprice, window(dateTime, '10 seconds') AS w FROM bid
                 GROUP BY window(dateTime, '10 seconds')) M
           ON B.price = M.maxprice AND B.dateTime >= M.w.start AND B.dateTime < M.w.end""",
        "auction:i price:i bidder:i dateTime:t extra:s",
        oracle="""SELECT auction, price, bidder, dateTime, extra FROM
           (SELECT *, max(price) OVER (PARTITION BY tumble(dateTime, 10)) AS maxprice FROM bid)
           WHERE price = maxprice""",
        closed="dateTime + 10000000 <= {end}",
    ),
    "q8": _query(
        """SELECT P.id, P.name, P.w.start AS starttime FROM
           (SELECT id, name, window(dateTime, '10 seconds') AS w FROM person
            GROUP BY id, name, window(dateTime, '10 seconds')) P JOIN
           (SELECT seller, window(dateTime, '10 seconds') AS w FROM auction
            GROUP BY seller, window(dateTime, '10 seconds')) A ON P.id = A.seller AND P.w = A.w""",
        "id:i name:s starttime:t",
        "person auction",
        oracle="""SELECT DISTINCT P.id, P.name, make_timestamp(tumble(P.dateTime, 10)) AS starttime FROM person P
           JOIN auction A ON P.id = A.seller AND tumble(P.dateTime, 10) = tumble(A.dateTime, 10)""",
        closed="starttime + 10000000 <= {end}",
    ),
    "q11": _query(
        """SELECT bidder, count(*) AS bid_count, session_window.start AS starttime, session_window.end AS endtime
           FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds')""",
        "bidder:i bid_count:i starttime:t endtime:t",
        oracle="""SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime,
           max(dateTime) + INTERVAL 10 SECOND AS endtime FROM
           (SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM
            (SELECT *, CASE WHEN dateTime - lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)
                <= INTERVAL 10 SECOND THEN 0 ELSE 1 END AS begins FROM bid)) GROUP BY bidder, session""",
        closed="endtime <= {end}",
    ),
    "q12": _query(
        """SELECT bidder, count(*) AS bid_count, window(now, '10 seconds').start AS starttime
           FROM (SELECT bidder, current_timestamp() AS now FROM bid) GROUP BY bidder, window(now, '10 seconds')""",
        "bidder:i bid_count:i",
        oracle="SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
        mode="update",
        key=("bidder", "starttime"),
        summed="SELECT bidder, sum(bid_count) AS bid_count FROM results GROUP BY bidder",
    ),
}
_RUNNING: dict[str, NexmarkQuery] = {
    "q15": _query(
        f"SELECT {_DAY} AS day, {_COUNTS} FROM bid GROUP BY {_DAY}",
        f"day:s {_COUNT_COLUMNS}",
        mode="update",
        key=("day",),
    ),
    "q16": _query(
        f"""SELECT channel, {_DAY} AS day, max(date_format(dateTime, 'HH:mm')) AS minute, {_COUNTS}
           FROM bid GROUP BY channel, {_DAY}""",
        f"channel:s day:s minute:s {_COUNT_COLUMNS}",
        mode="update",
        key=("channel", "day"),
    ),
    "q17": _query(
        f"""SELECT auction, {_DAY} AS day, {_ranked("count(*)", "bids", "total_bids")}, min(price) AS min_price,
           max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
           FROM bid GROUP BY auction, {_DAY}""",
        "auction:i day:s total_bids:i rank1_bids:i rank2_bids:i rank3_bids:i min_price:i max_price:i avg_price:f "
        "sum_price:i",
        mode="update",
        key=("auction", "day"),
    ),
    "q18": _query(
        """SELECT auction, bidder, price, channel, url, dateTime, extra FROM
           (SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS place FROM bid)
           WHERE place <= 1""",
        _WIDE_BID,
        mode="update",
        key=("auction", "bidder"),
    ),
    "q19": _query(
        """SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS place
           FROM bid) WHERE place <= 10""",
        f"{_WIDE_BID} place:i",
        mode="update",
        key=("auction", "place"),
    ),
}
_ALL = _STATELESS | _JOINS | _WINDOWS | _RUNNING
QUERIES: dict[str, NexmarkQuery] = {f"q{number}": _ALL[f"q{number}"] for number in range(len(_ALL))}
