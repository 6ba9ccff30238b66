"""Queries to peers: which brokers share this name, and their log and replication state.

    106   GET_BROKER_CLUSTER_INFO   to a name server: the ids and addresses that it lists
    71003 GET_IDENTITY              to a broker: its name, id and role, and where its log ends
    26    GET_BROKER_CONFIG         to a broker that does not know 71003: its settings
    28    GET_BROKER_RUNTIME_INFO   the same: where its log ends
    71011 CLAIM_SLAVE_ID            to a rocketrio master: an id under which to follow it

Each query is sent once and raises an Error for any answer but a good one; the caller decides whether to ask again.
Apache's name servers and brokers answer 106, 26 and 28.

Invariant: a broker that a name server lists gets no signature for a question: any host may be listed there.
Answers to: BrokerOuterAPI, as far as it sends queries.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import attrs
import trio

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.exchange import REPLICATION_KEY
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.bodies.route import ClusterInfo, KVTable
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    ClaimSlaveIdRequestHeader,
    ClaimSlaveIdResponseHeader,
    GetBrokerConfigRequestHeader,
    GetBrokerRuntimeInfoRequestHeader,
    GetIdentityRequestHeader,
    GetIdentityResponseHeader,
)
from rocketrio_protocol.commands.cluster import GetBrokerClusterInfoRequestHeader
from rocketrio_protocol.errors import (
    Error,
    RemoteProtocolError,
    RequestCodeNotSupportedError,
    refusal_class,
)
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.pool import check
from rocketrio_protocol.remoting.ports import is_peer_addr, join_addr, split_addr

logger = logging.getLogger("rocketrio_broker.ha")

CALL_TIMEOUT: Final = 3.0
"""Seconds that one of the requests may take, as in Java."""
ASK_AGAIN_PAUSE: Final = 0.5
"""Seconds until a peer that could not be asked is asked again, by callers that need an answer."""

CLUSTER_INFO_SIZE_LIMIT: Final = 4 << 20
"""The most bytes of a name server's list (106): some 20,000 brokers, parsed in 50 ms."""
LISTED_LIMIT: Final = 2 * SLAVES_LIMIT
"""The most brokers of one name that are accepted from a list: twice as many as slaves may be connected."""
_ID_DIGITS: Final = 18
"""The most digits of a broker's id that are read."""


class PeerCaller(Protocol):
    """A function that sends a request: `ChannelPool.call`."""

    async def __call__(
        self, addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = CALL_TIMEOUT
    ) -> RemotingCommand: ...


async def ask(
    call: PeerCaller, addr: str, request: RequestHeader, what: str | None = None
) -> bytes:
    """Return the body of a good answer; `what` begins the text of the error that a refusal raises."""
    response = await call(addr, request, timeout=CALL_TIMEOUT)
    what = what or f"Asking for {request.code.name}"
    return bytes(check(response, what, broker_addr=addr).body)


async def ask_log_end(call: PeerCaller, addr: str) -> int:
    """Return where the log of this broker ends."""
    body = await ask(call, addr, GetBrokerRuntimeInfoRequestHeader())
    info = fastjson.loads(body, KVTable, what="runtime info")
    try:
        return int(info.table["commitLogMaxOffset"])
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(
            f"The broker does not report where its log ends ({error!r})", broker_addr=addr
        ) from error


@attrs.frozen
class Identity:
    """Who the broker at an address says it is."""

    broker_name: str | None
    broker_id: int | None
    ha_addr: str | None
    """Where it serves its log; None if it does not report that."""
    is_rocketrio: bool = False
    role: str | None = None
    """Its role; None if it does not know the question."""
    claims: bool | None = None
    log_end: int | None = None

    def required_ha_addr(self, addr: str) -> str:
        """Return where the broker at `addr` serves its log. Raises RemoteProtocolError if it does not report that."""
        if self.ha_addr is None:
            raise no_ha_addr(addr)
        return self.ha_addr


def no_ha_addr(addr: str) -> RemoteProtocolError:
    """Return the problem of a broker of which it is not known where it serves its log."""
    return RemoteProtocolError(
        "The broker does not report where it serves its log", broker_addr=addr
    )


async def ask_identity(question: PeerCaller, addr: str) -> Identity:
    """Return who the broker at this address says it is; Apache's brokers are asked for their settings."""
    try:
        response = await question(addr, GetIdentityRequestHeader(), timeout=CALL_TIMEOUT)
        check(response, "Asking for GET_IDENTITY", broker_addr=addr)
    except RequestCodeNotSupportedError:
        return _identity_in(
            parse_properties(await ask(question, addr, GetBrokerConfigRequestHeader())), addr
        )
    own = response.header(GetIdentityResponseHeader)
    return Identity(
        own.broker_name,
        own.broker_id,
        own.ha_address if is_peer_addr(own.ha_address) else None,
        is_rocketrio=True,
        role=own.role,
        claims=own.claims,
        log_end=own.log_end_offset,
    )


def _identity_in(settings: Mapping[str, str], addr: str) -> Identity:
    broker_id = settings.get("brokerId", "")
    is_number = broker_id.isascii() and broker_id.isdigit() and len(broker_id) <= _ID_DIGITS
    return Identity(
        settings.get("brokerName"),
        int(broker_id) if is_number else None,
        replication_addr(settings, addr),
        is_rocketrio=REPLICATION_KEY in settings,
    )


def replication_addr(settings: Mapping[str, str], addr: str) -> str | None:
    """Return where the broker with these settings (26), at `addr`, serves its log; None if they do not contain it."""
    port = settings.get("haListenPort", "")
    host = settings.get("brokerIP2") or split_addr(addr)[0]
    if not (port.isdecimal() and port.isascii() and len(port) <= len("65535")):
        return None
    replication = join_addr(host, int(port))
    return replication if is_peer_addr(replication) else None


def unsigned_questions(
    unsigned: PeerCaller, signed: PeerCaller, *, may_sign: Callable[[str], bool]
) -> PeerCaller:
    """Return a function that asks without a signature.

    A broker that wants one, such as one of an earlier version, gets it only if `may_sign` permits that for its address.
    """

    async def question(
        addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = CALL_TIMEOUT
    ) -> RemotingCommand:
        # Without a signature first: any host can be listed, and would get what an earlier broker accepts as an order.
        answer = await unsigned(addr, request, body, timeout=timeout)
        if refusal_class(answer.code, answer.remark) is None or not may_sign(addr):
            return answer
        return await signed(addr, request, body, timeout=timeout)

    return question


async def claim_slave_id(
    peers: "Peers", addr: str, *, configured: int = MASTER_ID, shared: int = MASTER_ID
) -> int:
    """Ask the master at an address for an id to follow it. Raises RequestCodeNotSupportedError for an Apache master.

    `configured` is the id in this broker's settings, and `shared` one that another broker has too; 0 if none.
    """
    request = ClaimSlaveIdRequestHeader(peers.broker_name, peers.own_addr, configured, shared)
    response = await peers.call(addr, request, timeout=CALL_TIMEOUT)
    check(response, "Asking to follow", broker_addr=addr)
    return response.header(ClaimSlaveIdResponseHeader).broker_id


@attrs.frozen
class Peers:
    """What one broker needs to find and ask the other brokers of its name."""

    call: PeerCaller
    """Sends requests signed."""
    question: PeerCaller
    """Sends questions without a signature (`unsigned_questions`)."""
    name_servers: Sequence[str]
    broker_name: str
    own_addr: str
    """The address under which this broker itself is listed."""
    remembered: Callable[[], Sequence[str]] = tuple
    """Returns slaves that name servers listed recently, and may not list now."""
    connecting: Callable[[], Sequence[str]] = tuple
    """Returns slaves that connected a moment ago and are proved, whether name servers list them or not."""

    async def listed(self, name_server: str) -> Mapping[int, str]:
        """Return the brokers of this name that a name server lists, perhaps with this one: id to address.

        Only entries that can be an address are included, because all of them are dialled, and LISTED_LIMIT at most.
        """
        body = await ask(self.call, name_server, GetBrokerClusterInfoRequestHeader())
        if len(body) > CLUSTER_INFO_SIZE_LIMIT:
            raise RemoteProtocolError(
                f"The name server's list of brokers has {len(body)} bytes, more than {CLUSTER_INFO_SIZE_LIMIT}",
                broker_addr=name_server,
            )
        info = fastjson.loads(body, ClusterInfo, what="cluster info")
        broker = info.broker_addr_table.get(self.broker_name)
        addrs = {} if broker is None else broker.broker_addrs
        usable = sorted(each for each in addrs.items() if is_peer_addr(each[1]))
        return dict(usable[:LISTED_LIMIT])

    async def listed_slaves(self, name_server: str) -> list[str]:
        """Return the addresses of the slaves that a name server lists, without this broker's own."""
        return self.slaves_among(await self.listed(name_server))

    def slaves_among(self, listed: Mapping[int, str]) -> list[str]:
        """Return the addresses of the slaves in such a list, without this broker's own."""
        return [
            addr
            for broker_id, addr in listed.items()
            if broker_id != MASTER_ID and addr != self.own_addr
        ]

    async def listed_by_all(self) -> list[Mapping[int, str]]:
        """Return the lists of the name servers, in their order, without those that do not answer in CALL_TIMEOUT."""
        listed: dict[str, Mapping[int, str]] = {}

        async def ask_one(name_server: str) -> None:
            try:
                listed[name_server] = await self.listed(name_server)
            except Error as error:
                logger.debug("name server not asked addr=%s error=%s", name_server, error)

        with trio.move_on_after(CALL_TIMEOUT):
            async with trio.open_nursery() as nursery:
                for name_server in self.name_servers:
                    nursery.start_soon(ask_one, name_server)
        return [listed[addr] for addr in self.name_servers if addr in listed]
