"""Everything that takes a peer's bytes, or a file's: each target takes any, and raises nothing that is not documented.

    parsers.py   one function of the protocol each; all that they may raise is an `Error`
    servers.py   a broker, a name server, and both ends of replication, which go on serving others
    files.py     a file of a broker's data directory, which never prevents a start
    clients.py   what servers answer, and what brokers ask of their clients

Inputs begin with the recorded traffic of Apache peers (seeds.py) and what `corpora/` has: what fuzzing has found so
far, and what once broke something.
"""

from typing import Final

from tests.fuzz.clients import CLIENTS
from tests.fuzz.files import FILES
from tests.fuzz.parsers import PARSERS
from tests.fuzz.servers import SERVERS
from tests.fuzz.target import Target

TARGETS: Final[tuple[Target, ...]] = (*PARSERS, *SERVERS, *FILES, *CLIENTS)
BY_NAME: Final = {target.name: target for target in TARGETS}
