"""The name servers of a cluster: their addresses, and requests to one after the other.

Invariant: the one that answered last is asked first, so that a dead one costs its timeout only once.
Answers to: the name-server half of NettyRemotingClient, MixAll.getNSAddr.
Unlike Java: every name server is asked before a topic counts as unknown; name servers do not exchange data, and a
restarted one knows nothing for up to 30 s.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import attrs
import trio

from rocketrio.arguments import list_of
from rocketrio.cluster.connections import Caller
from rocketrio.cluster.variables import DEFAULT_NAME_SERVER, NAME_SERVERS_VARIABLE
from rocketrio.limits import API_TIMEOUT
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo, TopicList, TopicRouteData
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.cluster import (
    AddWritePermRequestHeader,
    AddWritePermResponseHeader,
    DeleteTopicInNamesrvRequestHeader,
    GetAllTopicListRequestHeader,
    GetBrokerClusterInfoRequestHeader,
    GetRouteInfoRequestHeader,
    WipeWritePermRequestHeader,
    WipeWritePermResponseHeader,
)
from rocketrio_protocol.errors import (
    AccessRefusedError,
    ConfigError,
    Error,
    NoBrokerRegisteredError,
    NotReachableError,
    RemoteProtocolError,
    RequestCodeNotSupportedError,
    RouteNotFoundError,
    TlsError,
)
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.pool import check
from rocketrio_protocol.remoting.ports import name_server_addrs, split_addr

NEXT_AFTER: Final = 1.0
"""Seconds for one name server while there is another one to ask, so that a send has time for both."""

T = TypeVar("T")

logger = logging.getLogger("rocketrio.name_servers")


def name_server_addresses(
    given: str | Sequence[str] | None, environ: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the addresses to use: those given, else those of `NAMESRV_ADDR`, else the local one.

    Raises ConfigError for a text that holds no address, see `name_server_addrs`.
    """
    if given is None:
        given = (os.environ if environ is None else environ).get(NAME_SERVERS_VARIABLE, "")
    if not isinstance(given, str):
        given = ";".join(list_of(str, "name_servers", given))
    return name_server_addrs(given) or (DEFAULT_NAME_SERVER,)


@attrs.define
class NameServers:
    """All name servers of one cluster, which are asked as one."""

    pool: Caller
    addresses: tuple[str, ...]
    timeout: float = API_TIMEOUT
    _first: int = 0

    async def call(self, header: RequestHeader, body: bytes = b"") -> RemotingCommand:
        """Return the answer of the first name server that answers, whatever its code.

        Raises NotReachableError if none does, with the error of each, and AccessRefusedError if the account is refused.
        """
        failures: list[Error] = []
        for index in self._order():
            answer = await self._ask(index, header, body, failures)
            if answer is not None:
                return answer
        raise self._none_answered(failures)

    async def topic_route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic, or None if no name server that answers knows it. Raises NotReachableError."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        failures: list[Error] = []
        unknown = False
        for index in self._order():
            answer = await self._ask(index, header, b"", failures)
            if answer is None:
                continue
            if answer.code == ResponseCode.SUCCESS and answer.body:
                route = TopicRouteData.from_json(answer.body)
                _check_addresses(route.broker_datas)
                return route
            if answer.code not in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS):
                self._check(answer, "the name server gave no route", self.addresses[index], topic)
            # Not yet the answer: a name server that restarted knows nothing for
            # up to 30 s, and the others may know the topic.
            unknown = True
        if unknown:
            return None
        raise self._none_answered(failures)

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers. Raises NotReachableError, BrokerError."""
        answer = await self._checked(GetBrokerClusterInfoRequestHeader(), "cluster info failed")
        info = ClusterInfo.from_json(answer.body)
        _check_addresses(info.broker_addr_table.values())
        return info

    async def cluster_info_of_each(self) -> dict[str, ClusterInfo | Error]:
        """Return what each name server knows of brokers, by address, or why it did not answer."""
        header = GetBrokerClusterInfoRequestHeader()
        return await self.ask_each(
            header, lambda answer: ClusterInfo.from_json(answer.body), what="cluster info failed"
        )

    async def set_writable(self, broker_name: str, *, writable: bool) -> dict[str, int | Error]:
        """Give or take a broker's write permission at each name server; return how many topics changed, by address."""
        if writable:
            return await self.ask_each(
                AddWritePermRequestHeader(broker_name),
                lambda answer: answer.header(AddWritePermResponseHeader).add_topic_count,
                what="write permission not given",
            )
        return await self.ask_each(
            WipeWritePermRequestHeader(broker_name),
            lambda answer: answer.header(WipeWritePermResponseHeader).wipe_topic_count,
            what="write permission not taken",
        )

    async def ask_each(
        self,
        header: RequestHeader,
        read: Callable[[RemotingCommand], T],
        body: bytes = b"",
        *,
        what: str,
    ) -> dict[str, T | Error]:
        """Ask all name servers at the same time; return what `read` makes of each answer, by address, or the error."""
        found: dict[str, T | Error] = {}

        async def ask(address: str) -> None:
            try:
                answer = await self.pool.call(address, header, body, timeout=self.timeout)
                self._check(answer, what, address)
                found[address] = read(answer)
            except Error as error:
                found[address] = error

        async with trio.open_nursery() as nursery:
            for address in self.addresses:
                nursery.start_soon(ask, address)
        return {address: found[address] for address in self.addresses}

    async def unknown_topic(self, topic: str) -> RouteNotFoundError:
        """Return the error for a topic that no name server knows: it is missing, or the cluster is starting."""
        answers = [
            await self._ask(index, GetBrokerClusterInfoRequestHeader(), b"", [])
            for index in self._order()
        ]
        successes = [answer for answer in answers if answer and answer.code == ResponseCode.SUCCESS]
        if successes and not any(
            ClusterInfo.from_json(each.body).broker_addr_table for each in successes
        ):
            where = "; ".join(self.addresses)
            return NoBrokerRegisteredError(f"no broker is registered at {where}", topic=topic)
        return RouteNotFoundError("no name server knows the topic", topic=topic)

    async def topics(self) -> list[str]:
        """Return the names of all topics. Raises NotReachableError, BrokerError."""
        answer = await self._checked(GetAllTopicListRequestHeader(), "topic list failed")
        return TopicList.from_json(answer.body).topic_list

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic from every name server. Raises NotReachableError if one of them cannot be reached."""
        header = DeleteTopicInNamesrvRequestHeader(topic=topic)
        for address in self.addresses:
            answer = await self.pool.call(address, header, timeout=self.timeout)
            self._check(answer, "topic not forgotten", address)

    async def _checked(self, header: RequestHeader, what: str) -> RemotingCommand:
        answer = await self.call(header)
        self._check(answer, what, self.addresses[self._first])
        return answer

    @staticmethod
    def _check(answer: RemotingCommand, what: str, address: str, topic: str | None = None) -> None:
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise RequestCodeNotSupportedError(
                f"{address} is not a name server",
                code=answer.code,
                remark=answer.remark,
                remedy="It may be a broker; name servers listen on port 9876 by default",
            )
        check(answer, what, broker_addr=address, topic=topic)

    def _order(self) -> list[int]:
        count = len(self.addresses)
        return [(self._first + step) % count for step in range(count)]

    async def _ask(
        self, index: int, header: RequestHeader, body: bytes, failures: list[Error]
    ) -> RemotingCommand | None:
        address = self.addresses[index]
        count = len(self.addresses)
        is_last = len(failures) == count - 1
        # A dead one must leave time for the next within the time of one send.
        timeout = self.timeout if is_last else min(self.timeout, NEXT_AFTER)
        answer, is_answered = None, False
        try:
            answer = await self.pool.call(address, header, body, timeout=timeout)
            is_answered = True
        except NotReachableError as error:
            logger.info("name server does not answer addr=%s error=%s", address, error.what)
            failures.append(error)
        except AccessRefusedError:
            is_answered = True
            raise
        # Also if the caller's timeout expires: a server that did not answer is not asked first again.
        finally:
            self._first = index if is_answered else (index + 1) % count
        return answer

    def _none_answered(self, failures: Sequence[Error]) -> NotReachableError:
        said = "; ".join(error.what for error in failures)
        for error in failures:
            if isinstance(error, TlsError):  # A later try fails too.
                return TlsError(
                    f"no name server answered ({', '.join(self.addresses)}): {said}",
                    remedy=error.advice,
                )
        return NotReachableError(
            f"no name server answered ({', '.join(self.addresses)}): {said}",
            remedy=f"Start one, or give its address as a name server or in {NAME_SERVERS_VARIABLE}",
        )


def _check_addresses(brokers: Iterable[BrokerData]) -> None:
    """Raise RemoteProtocolError for an invalid address, so that the error names the broker to be corrected."""
    for broker in brokers:
        for addr in broker.broker_addrs.values():
            try:
                split_addr(addr)
            except ConfigError as error:
                raise RemoteProtocolError(
                    f"the name server gives {addr!r} as an address of {broker.broker_name}",
                    remedy="Set that broker's address (brokerIP1, listen) to one host and one port",
                ) from error
