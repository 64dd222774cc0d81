"""Tables of TPC-H with made-up rows: the same for the same size, and with something in them for every query."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

QUERIES = {path.stem: path.read_text() for path in sorted(Path(__file__).parent.glob("q*.sql"))}

TABLES = {
    "region": "r_regionkey INT, r_name STRING, r_comment STRING",
    "nation": "n_nationkey INT, n_name STRING, n_regionkey INT, n_comment STRING",
    "supplier": "s_suppkey INT, s_name STRING, s_address STRING, s_nationkey INT, s_phone STRING, "
    "s_acctbal DECIMAL(15, 2), s_comment STRING",
    "customer": "c_custkey INT, c_name STRING, c_address STRING, c_nationkey INT, c_phone STRING, "
    "c_acctbal DECIMAL(15, 2), c_mktsegment STRING, c_comment STRING",
    "part": "p_partkey INT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, p_size INT, "
    "p_container STRING, p_retailprice DECIMAL(15, 2), p_comment STRING",
    "partsupp": "ps_partkey INT, ps_suppkey INT, ps_availqty INT, ps_supplycost DECIMAL(15, 2), ps_comment STRING",
    "orders": "o_orderkey INT, o_custkey INT, o_orderstatus STRING, o_totalprice DECIMAL(15, 2), o_orderdate DATE, "
    "o_orderpriority STRING, o_clerk STRING, o_shippriority INT, o_comment STRING",
    "lineitem": "l_orderkey INT, l_partkey INT, l_suppkey INT, l_linenumber INT, l_quantity DECIMAL(15, 2), "
    "l_extendedprice DECIMAL(15, 2), l_discount DECIMAL(15, 2), l_tax DECIMAL(15, 2), l_returnflag STRING, "
    "l_linestatus STRING, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, "
    "l_shipmode STRING, l_comment STRING",
}

NATIONS = """
ALGERIA 0, ARGENTINA 1, BRAZIL 1, CANADA 1, EGYPT 4, ETHIOPIA 0, FRANCE 3, GERMANY 3, INDIA 2, INDONESIA 2, IRAN 4,
IRAQ 4, JAPAN 2, JORDAN 4, KENYA 0, MOROCCO 0, MOZAMBIQUE 0, PERU 1, CHINA 2, ROMANIA 3, SAUDI ARABIA 4, VIETNAM 2,
RUSSIA 3, UNITED KINGDOM 3, UNITED STATES 1
"""
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")


@dataclass(frozen=True)
class Size:
    """How many rows the tables have at first."""

    suppliers: int
    customers: int
    parts: int
    orders: int

    @classmethod
    def of(cls, scale: float) -> Size:
        """The sizes that TPC-H has for a scale factor."""
        return cls(int(10_000 * scale), int(150_000 * scale), int(200_000 * scale), int(1_500_000 * scale))


TINY = Size(16, 40, 50, 160)
"""Enough for every query to have an answer."""

_MACROS = """
CREATE OR REPLACE MACRO pick(salt, i, n) AS CAST(hash(salt * 1000003 + i) % n AS INT);
CREATE OR REPLACE MACRO one(list, salt, i) AS list[1 + pick(salt, i, len(list))];
CREATE OR REPLACE MACRO money(salt, i, low, high) AS CAST((low * 100 + pick(salt, i, (high - low) * 100)) / 100.0
    AS DECIMAL(15, 2));
"""
_NATION = "[2, 3, 6, 7, 8, 18, 20, 24]"
"""Nations that queries ask for, and some beside them."""


def setup(size: Size) -> str:
    """SQL for DuckDB that fills the tables."""
    regions = ", ".join(f"({i}, '{name}', 'c')" for i, name in enumerate(REGIONS))
    nations = ", ".join(
        f"({i}, '{said.rsplit(' ', 1)[0].strip()}', {said.rsplit(' ', 1)[1]}, 'c')"
        for i, said in enumerate(" ".join(NATIONS.split()).split(", "))
    )
    return f"""
    {_MACROS}
    INSERT INTO region VALUES {regions};
    INSERT INTO nation VALUES {nations};
    INSERT INTO supplier SELECT i, 'Supplier#' || i, 'Street ' || pick(1, i, 90), one({_NATION}, 2, i),
        (10 + pick(3, i, 25)) || '-555', money(4, i, -900, 9000),
        CASE WHEN pick(5, i, 6) = 0 THEN 'the Customer has Complaints' ELSE 'quick' END
        FROM range(1, {size.suppliers} + 1) r(i);
    INSERT INTO customer SELECT i, 'Customer#' || i, 'Road ' || pick(11, i, 90), one({_NATION}, 12, i),
        one(['13', '31', '23', '29', '30', '18', '17', '11', '12'], 13, i) || '-555', money(14, i, -900, 9000),
        one(['BUILDING', 'AUTOMOBILE', 'MACHINERY'], 15, i), 'c' FROM range(1, {size.customers} + 1) r(i);
    INSERT INTO part SELECT i, one(['forest', 'green', 'lime', 'red'], 21, i) || ' ' ||
        one(['green', 'navy', 'peach'], 22, i), 'Manufacturer#' || (1 + pick(23, i, 5)),
        one(['Brand#12', 'Brand#23', 'Brand#34', 'Brand#45'], 24, i),
        one(['ECONOMY ANODIZED STEEL', 'PROMO BURNISHED BRASS', 'MEDIUM POLISHED TIN', 'STANDARD BRASS'], 25, i),
        one([15, 3, 9, 14, 49], 26, i), one(['SM CASE', 'SM BOX', 'MED BOX', 'MED BAG', 'LG BOX'], 27, i),
        money(28, i, 900, 2000), 'c' FROM range(1, {size.parts} + 1) r(i);
    INSERT INTO partsupp SELECT p, 1 + (p + k * {max(1, size.suppliers // 4)}) % {size.suppliers},
        pick(31, p * 4 + k, 300), money(32, p * 4 + k, 1, 1000), 'c'
        FROM range(1, {size.parts} + 1) r(p), range(4) s(k);
    {orders(1, size.orders, size)}
    """


def orders(first: int, last: int, size: Size) -> str:
    """SQL that adds orders with these keys, and their lines. A third of the customers never order."""
    return f"""
    INSERT INTO orders SELECT i, 3 * pick(41, i, {size.customers // 3}) + 1 + pick(42, i, 2),
        one(['F', 'O', 'P'], 43, i), money(44, i, 1000, 400000),
        DATE '1993-07-01' + pick(45, i, 1400), one(['1-URGENT', '2-HIGH', '3-MEDIUM', '5-LOW'], 46, i), 'Clerk#1', 0,
        CASE WHEN pick(47, i, 5) = 0 THEN 'so special are the requests' ELSE 'c' END
        FROM range({first}, {last} + 1) r(i);
    INSERT INTO lineitem SELECT o, p, 1 + (p + pick(52, x, 4) * {max(1, size.suppliers // 4)}) % {size.suppliers}, k,
        q, q * money(54, p, 900, 2000), pick(55, x, 11) / 100.0, pick(56, x, 9) / 100.0, one(['R', 'A', 'N'], 57, x),
        one(['F', 'O'], 58, x), since + d1, since + 45 + pick(61, x, 30), since + d1 + 1 + pick(62, x, 30),
        one(['DELIVER IN PERSON', 'NONE'], 63, x), one(['AIR', 'AIR REG', 'MAIL', 'SHIP'], 64, x), 'c'
        FROM (SELECT o_orderkey o, o_orderdate AS since, k, o_orderkey * 8 + k x,
                1 + pick(51, o_orderkey * 8 + k, {size.parts}) p, 1 + pick(60, o_orderkey * 8 + k, 90) d1,
                CASE WHEN o_orderkey % 10 = 0 THEN 50 ELSE 1 + pick(53, o_orderkey * 8 + k, 50) END q
            FROM orders, range(1, 8) s(k)
            WHERE o_orderkey BETWEEN {first} AND {last} AND (o_orderkey % 10 = 0 OR k <= 1 + pick(50, o_orderkey, 6)));
    """


def rounds(size: Size) -> list[list[str]]:
    """Three rounds of inserts, updates and deletes."""
    last, some = size.orders, max(5, size.orders // 100)
    return [
        [
            orders(last + 1, last + some, size),
            "UPDATE supplier SET s_comment = 'fine' WHERE s_suppkey % 5 = 1",
            "DELETE FROM partsupp WHERE ps_partkey % 17 = 3",
            "UPDATE customer SET c_acctbal = c_acctbal + 700 WHERE c_custkey % 7 = 2",
        ],
        [
            "DELETE FROM lineitem WHERE l_orderkey % 11 = 4",
            "DELETE FROM orders WHERE o_orderkey % 11 = 4",
            "UPDATE part SET p_brand = 'Brand#23', p_container = 'MED BOX' WHERE p_partkey % 9 = 1",
            "UPDATE supplier SET s_nationkey = 20 WHERE s_suppkey % 6 = 2",
            "UPDATE nation SET n_regionkey = 3 WHERE n_name = 'CHINA'",
        ],
        [
            orders(last + some + 1, last + 2 * some, size),
            "UPDATE lineitem SET l_quantity = l_quantity + 9, l_receiptdate = l_receiptdate + 20 "
            "WHERE l_orderkey % 13 = 5",
            "INSERT INTO supplier VALUES (NULL, 'nobody', 'no street', 7, '13', 0, 'a Customer with Complaints')",
            "DELETE FROM customer WHERE c_custkey % 19 = 4",
            "UPDATE partsupp SET ps_supplycost = ps_supplycost * 2 WHERE ps_suppkey % 4 = 1",
        ],
    ]
