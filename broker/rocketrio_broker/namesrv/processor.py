"""The requests that the name server answers: registration, routes, lists, key-value configuration.

Unknown codes are answered too (4.x does not answer them at all).

Invariant: a registration of many topics is read in steps, one registration at a time, so that no request waits for all
of it.
Invariant: names and addresses that brokers register are checked before they are stored, logged or sent to any peer.
Invariant: a listed master is removed for another one only if it does not answer.
Answers to: DefaultRequestProcessor, ClientRequestProcessor of the name server; RocketMQ reference, section 2.12.
"""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar, cast

import attrs
import trio

from rocketrio_broker.access.needs import (
    ADDRESS,
    GET,
    SIGNATURE,
    UPDATE,
    VALID_USER,
    C,
    Facts,
    Need,
    Rule,
)
from rocketrio_broker.namesrv.host_share import HostShare
from rocketrio_broker.namesrv.kv import ORDER_TOPIC_NAMESPACE, KVConfigManager
from rocketrio_broker.namesrv.probes import MasterProbes
from rocketrio_broker.namesrv.routes import (
    AnotherMasterError,
    BrokerAddr,
    Registration,
    RegistrationRefusedError,
    RouteInfoManager,
)
from rocketrio_broker.requests.audit import named_settings
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.requests.steps import in_steps
from rocketrio_protocol.access.model import ResourceKind
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.java_properties import format_properties, parse_properties
from rocketrio_protocol.bodies.registration import (
    INFLATION_LIMIT,
    body_crc32,
    read_register_body,
)
from rocketrio_protocol.bodies.route import STANDARD_JSON_VERSION, TopicList
from rocketrio_protocol.bodies.topics import (
    QUEUE_NUMS_LIMIT,
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import cluster
from rocketrio_protocol.errors import BrokerSystemError
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import registered_name_problem
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer
from rocketrio_protocol.remoting.ports import is_peer_addr, split_addr
from rocketrio_protocol.remoting.rare_log import RareLog
from rocketrio_protocol.steps import all_at_once

T = TypeVar("T")

Register: TypeAlias = Callable[[], Generator[None, None, Answer]]
"""Begins to register a broker, in steps. The first one raises AnotherMasterError for a second master."""

ALL_CLUSTERS: Final = "*"
"""What is asked for where no cluster is named: a right on `Cluster:*`."""

LARGE_BODY_SIZE: Final = 256 << 10
"""The size in bytes, inflated, from which on a registration is read in steps: some 2,000 topics in JSON, and 10 ms."""

WAITING_BODIES_LIMIT: Final = 64 << 20
"""The most bytes of such registrations that may wait for their turn, half of them of one host; further ones are refused
as busy."""

FILTER_SERVERS_LIMIT: Final = 16
"""The most filter servers of one broker."""

_SLICE: Final = 5_000
"""The number of topics that are checked in one step."""


@attrs.define
class NameServerSettings:
    """The settings that an operator may change while the name server runs (318)."""

    order_message_enable: bool = False
    """Whether routes include the text stored for the topic in the namespace ORDER_TOPIC_CONFIG."""

    def to_properties(self) -> dict[str, str]:
        """Return the settings under Java's names."""
        return {"orderMessageEnable": "true" if self.order_message_enable else "false"}

    def update(self, properties: Mapping[str, str]) -> None:
        """Change known settings. Raises BrokerSystemError, and changes nothing, if there is an unknown one."""
        known = self.to_properties()
        if unknown := sorted(properties.keys() - known.keys()):
            raise BrokerSystemError(
                f"A running name server changes {', '.join(known)}, and not {', '.join(unknown)}"
            )
        text = properties.get("orderMessageEnable")
        if text is not None:
            self.order_message_enable = text.strip().lower() == "true"


class NameServerFacts:
    """What rules ask about a name server, which serves all clusters and stores no message."""

    cluster_name = ALL_CLUSTERS
    creates_topics = False

    def has_topic(self, name: str) -> bool:
        return False

    def topics_of_group(self, group: str) -> Iterable[str]:
        return ()

    def stored_topic(self, address: int) -> str | None:
        return None

    def stored_message(self, address: int) -> MessageExt | None:
        return None


def _named_cluster(
    header_class: type[
        cluster.RegisterBrokerRequestHeader
        | cluster.UnregisterBrokerRequestHeader
        | cluster.QueryDataVersionRequestHeader
        | cluster.DeleteTopicInNamesrvRequestHeader
    ],
) -> Rule:
    """Return the rule of requests that change the cluster which they name, or all."""

    def rule(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
        name = request.header(header_class).cluster_name
        return (Need(ResourceKind.CLUSTER, name or ALL_CLUSTERS, UPDATE),)

    return rule


class NameServerProcessor:
    """Answers the name server's requests."""

    def __init__(
        self,
        *,
        routes: RouteInfoManager,
        kv_config: KVConfigManager,
        settings: NameServerSettings,
    ) -> None:
        self._routes = routes
        self._kv_config = kv_config
        self._settings = settings
        self._turn = trio.Lock()
        """Held while a large registration is being read."""
        self._waiting_sizes = HostShare(WAITING_BODIES_LIMIT)
        """The bytes of the large registrations that wait or are being read."""
        self._probes = MasterProbes()
        self._list_turn = trio.Lock()
        """Held by the request that iterates over all topics."""
        self._rare_log = RareLog()

    @property
    def is_reading(self) -> bool:
        """Whether a large registration is being read."""
        return self._turn.locked()

    # ---------------------------------------------------------------------------------- for the audit

    def _entry(self, names: Mapping[str, str]) -> str | None:
        return self._kv_config.value(names["namespace"], names["key"])

    def _values(self, names: Sequence[str]) -> dict[str, str | None]:
        shown = self._settings.to_properties()
        return {name: shown.get(name) for name in names}

    def _write_permission(self, names: Mapping[str, str]) -> dict[str, bool | None]:
        permission = self._routes.ordered_write_permission(names["broker_name"])
        return {"write_permission_by_order": permission}

    def _is_routed(self, names: Mapping[str, str]) -> dict[str, bool]:
        return {"has_a_route": self._routes.pickup_topic_route_data(names["topic"]) is not None}

    # ------------------------------------------------------------------------------------- brokers

    @answers(
        cluster.RegisterBrokerRequestHeader,
        needs=_named_cluster(cluster.RegisterBrokerRequestHeader),
        known_by=ADDRESS,
    )
    def register_broker(
        self, channel: Channel, request: RemotingCommand
    ) -> Answer | Coroutine[Any, Any, Answer]:
        header = request.header(cluster.RegisterBrokerRequestHeader)
        if header.body_crc32 not in (0, body_crc32(request.body)):
            return request.response(code=ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        _check_broker(header)
        size = len(request.body)
        register = partial(self._registration_steps, channel, request, header)
        if size * (INFLATION_LIMIT if header.compressed else 1) <= LARGE_BODY_SIZE:
            try:
                return all_at_once(register())
            except AnotherMasterError as error:
                return self._register_in_place_of(error, channel, request, register)
        host = split_addr(channel.remote_addr)[0]
        if self._waiting_sizes.room(host) < size:
            return request.response(
                code=ResponseCode.SYSTEM_BUSY,
                remark=f"[OVERLOAD]{self._waiting_sizes.used} bytes of registrations wait already, try later",
            )
        self._waiting_sizes.take(host, size)
        return self._register_in_steps(channel, request, register, host, size)

    async def _register_in_steps(
        self, channel: Channel, request: RemotingCommand, register: Register, host: str, size: int
    ) -> Answer:
        try:
            async with self._turn:
                return await in_steps(register())
        except AnotherMasterError as error:
            return await self._register_in_place_of(error, channel, request, register)
        finally:
            self._waiting_sizes.give_back(host, size)

    async def _register_in_place_of(
        self,
        listed: AnotherMasterError,
        channel: Channel,
        request: RemotingCommand,
        register: Register,
    ) -> Answer:
        """Register a second master if the listed one does not answer, and refuse it otherwise."""
        master = cast(Channel, listed.channel)
        host = split_addr(channel.remote_addr)[0]
        try:
            if not await self._probes.is_silent(master, addr=listed.master_addr, asked_by=host):
                raise listed
            # Now, and not when the end of the connection is noticed: the name must be free in the next step.
            self._routes.channel_closed(master)
            async with self._turn:
                return await in_steps(register())
        except AnotherMasterError as error:
            self._log_refusal(channel, error)
            return request.response(
                cluster.RegisterBrokerResponseHeader(master_addr=error.master_addr),
                code=ResponseCode.SYSTEM_ERROR,
                remark=str(error),
            )

    def _log_refusal(self, channel: Channel, error: RegistrationRefusedError) -> None:
        self._rare_log.warning(
            "registration refused from=%s reason=%s", channel.remote_addr, error.what
        )

    def _registration_steps(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: cluster.RegisterBrokerRequestHeader,
    ) -> Generator[None, None, Answer]:
        registration = yield from self._read_registration(request, header)
        if channel.closed:
            return None  # The connection has closed: nothing would remove this registration.
        host = split_addr(channel.remote_addr)[0]
        try:
            result = yield from self._routes.registration_steps(
                registration, channel=channel, host=host, now=trio.current_time()
            )
        except AnotherMasterError:
            raise
        except RegistrationRefusedError as error:
            self._log_refusal(channel, error)
            raise
        answer = request.response(
            cluster.RegisterBrokerResponseHeader(
                result.ha_server_addr, result.master_addr, result.displaced
            ),
            self._kv_config.namespace_json(ORDER_TOPIC_NAMESPACE) or b"",
        )
        if result.left_out:
            self._rare_log.warning(
                "no room for all topics of a broker name=%s from=%s left_out=%d",
                header.broker_name, channel.remote_addr, result.left_out,
            )  # fmt: skip
            answer.remark = f"{result.left_out} topics found no room in this name server's tables"
        if result.displaced is not None:
            # Clients know one address of an id. Apache's brokers read no remark.
            answer.remark = (
                f"the id {header.broker_id} of {header.broker_name} was that of {result.displaced} until now; "
                "if both run, give one of them another id, because clients know one of them only"
            )
        return answer

    def _read_registration(
        self, request: RemotingCommand, header: cluster.RegisterBrokerRequestHeader
    ) -> Generator[None, None, Registration]:
        """Read and check a broker's registration, in steps."""
        registration = Registration(
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            broker_addr=header.broker_addr,
            ha_server_addr=header.ha_server_addr,
            topics=TopicConfigSerializeWrapper(),
        )
        body = yield from read_register_body(
            request.body,
            compressed=header.compressed,
            version=request.version,
            is_wanted=lambda version: not self._routes.has_topics(registration, version),
        )
        wrapper, servers = body.topic_config_serialize_wrapper, body.filter_server_list
        entries = iter(wrapper.topic_config_table.items())
        table: dict[str, TopicConfig] = {}
        count = 0
        while some := dict(islice(entries, _SLICE)):
            count += len(some)
            table.update(each for each in some.items() if _can_be_routed(*each))
            yield
        if count > len(table):
            self._rare_log.warning(
                "topics that cannot be routed are left out name=%s count=%d",
                header.broker_name, count - len(table),
            )  # fmt: skip
        return attrs.evolve(
            registration,
            topics=TopicConfigSerializeWrapper(wrapper.data_version, table),
            filter_servers=[each for each in servers if is_peer_addr(each)][:FILTER_SERVERS_LIMIT],
        )

    @answers(
        cluster.UnregisterBrokerRequestHeader,
        needs=_named_cluster(cluster.UnregisterBrokerRequestHeader),
        known_by=ADDRESS,
    )
    def unregister_broker(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.UnregisterBrokerRequestHeader)
        try:
            self._routes.unregister_broker(
                cluster_name=header.cluster_name,
                broker_addr=header.broker_addr,
                broker_name=header.broker_name,
                broker_id=header.broker_id,
                channel=channel,
            )
        except RegistrationRefusedError as error:
            self._rare_log.warning(
                "leave refused from=%s reason=%s", channel.remote_addr, error.what
            )
            raise
        return request.response()

    @answers(
        cluster.QueryDataVersionRequestHeader,
        needs=_named_cluster(cluster.QueryDataVersionRequestHeader),
        known_by=ADDRESS,
    )
    def query_data_version(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.QueryDataVersionRequestHeader)
        asked = None
        if request.body:
            asked = fastjson.loads_bounded(request.body, DataVersion, what="DataVersion")
        key = BrokerAddr(header.cluster_name, header.broker_addr)
        known = self._routes.data_version(key)
        changed = asked is None or known != asked
        if not changed:
            self._routes.refresh(key, channel=channel, now=trio.current_time())
        return request.response(
            cluster.QueryDataVersionResponseHeader(changed),
            b"" if known is None else fastjson.dumps(known),
        )

    @answers(
        cluster.WipeWritePermRequestHeader,
        needs=C(UPDATE),
        known_by=ADDRESS,
        audit=Audited(state=_write_permission),
    )
    async def wipe_write_permission(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(cluster.WipeWritePermRequestHeader)
        count = await self._in_turn(
            lambda: self._routes.change_write_permission(header.broker_name, writable=False)
        )
        return request.response(cluster.WipeWritePermResponseHeader(count))

    @answers(
        cluster.AddWritePermRequestHeader,
        needs=C(UPDATE),
        known_by=ADDRESS,
        audit=Audited(state=_write_permission),
    )
    async def add_write_permission(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(cluster.AddWritePermRequestHeader)
        count = await self._in_turn(
            lambda: self._routes.change_write_permission(header.broker_name, writable=True)
        )
        return request.response(cluster.AddWritePermResponseHeader(count))

    # ----------------------------------------------------------------------------- routes and lists

    @answers(cluster.GetRouteInfoRequestHeader, needs=VALID_USER, known_by=ADDRESS)
    def route_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.GetRouteInfoRequestHeader)
        route = self._routes.pickup_topic_route_data(header.topic)
        if route is None:
            return request.response(
                code=ResponseCode.TOPIC_NOT_EXIST,
                remark=f"No topic route info in name server for the topic: {header.topic}",
            )
        if self._settings.order_message_enable:
            route.order_topic_conf = self._kv_config.value(ORDER_TOPIC_NAMESPACE, header.topic)
        is_standard = request.version >= STANDARD_JSON_VERSION or header.accept_standard_json_only
        return request.response(body=route.to_json() if is_standard else route.to_classic_json())

    @answers(cluster.GetBrokerClusterInfoRequestHeader, needs=VALID_USER, known_by=ADDRESS)
    def cluster_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=self._routes.cluster_info().to_classic_json())

    @answers(cluster.GetAllTopicListRequestHeader, needs=VALID_USER, known_by=ADDRESS)
    def all_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, list(self._routes.topic_queue_table))

    @answers(cluster.GetTopicsByClusterRequestHeader, needs=VALID_USER, known_by=ADDRESS)
    async def topics_by_cluster(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(cluster.GetTopicsByClusterRequestHeader)
        topics = await self._in_turn(lambda: self._routes.topics_of_cluster(header.cluster))
        return _topic_list(request, topics)

    @answers(cluster.GetSystemTopicListFromNsRequestHeader, needs=VALID_USER, known_by=ADDRESS)
    def system_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        topics, broker_addr = self._routes.system_topics()
        return request.response(body=TopicList(topics, broker_addr).to_json())

    @answers(
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        needs=VALID_USER,
        known_by=ADDRESS,
    )
    async def unit_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        unit, unit_sub = {
            RequestCode.GET_UNIT_TOPIC_LIST: (True, None),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (None, True),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (False, True),
        }[RequestCode(request.code)]
        topics = await self._in_turn(lambda: self._routes.unit_topics(unit=unit, unit_sub=unit_sub))
        return _topic_list(request, topics)

    async def _in_turn(self, work: Callable[[], Generator[None, None, T]]) -> T:
        """Iterate over all topics in steps, for one request at a time: each keeps a list of them meanwhile."""
        async with self._list_turn:
            return await in_steps(work())

    @answers(
        cluster.DeleteTopicInNamesrvRequestHeader,
        needs=_named_cluster(cluster.DeleteTopicInNamesrvRequestHeader),
        known_by=ADDRESS,
        audit=Audited(state=_is_routed),
    )
    def delete_topic(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.DeleteTopicInNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return request.response()

    # -------------------------------------------------------------------------------- configuration

    @answers(
        cluster.PutKVConfigRequestHeader,
        needs=C(UPDATE),
        known_by=SIGNATURE,
        audit=Audited(state=_entry),
    )
    async def put_kv_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.PutKVConfigRequestHeader)
        await self._kv_config.put(header.namespace, header.key, header.value)
        return request.response()

    @answers(cluster.GetKVConfigRequestHeader, needs=C(GET), known_by=ADDRESS)
    def kv_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.GetKVConfigRequestHeader)
        value = self._kv_config.value(header.namespace, header.key)
        if value is None:
            return request.response(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return request.response(cluster.GetKVConfigResponseHeader(value))

    @answers(
        cluster.DeleteKVConfigRequestHeader,
        needs=C(UPDATE),
        known_by=SIGNATURE,
        audit=Audited(state=_entry),
    )
    async def delete_kv_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.DeleteKVConfigRequestHeader)
        await self._kv_config.delete(header.namespace, header.key)
        return request.response()

    @answers(cluster.GetKVListByNamespaceRequestHeader, needs=C(GET), known_by=ADDRESS)
    def kv_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.GetKVListByNamespaceRequestHeader)
        body = self._kv_config.namespace_json(header.namespace)
        if body is None:
            return request.response(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {header.namespace}",
            )
        return request.response(body=body)

    @answers(
        cluster.UpdateNameServerConfigRequestHeader,
        needs=C(UPDATE),
        known_by=SIGNATURE,
        audit=Audited(names=named_settings, state=_values),
    )
    def update_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self._settings.update(parse_properties(request.body))
        return request.response()

    @answers(cluster.GetNameServerConfigRequestHeader, needs=C(GET), known_by=ADDRESS)
    def config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=format_properties(self._settings.to_properties()))


def _topic_list(request: RemotingCommand, topics: list[str]) -> RemotingCommand:
    return request.response(body=TopicList(topics).to_json())


def _check_broker(header: cluster.RegisterBrokerRequestHeader) -> None:
    """Raise RegistrationRefusedError for invalid names and addresses.

    Among these are names that could forge a line of a log, or a path.
    """
    for name, kind in ((header.cluster_name, "cluster"), (header.broker_name, "broker")):
        if (problem := registered_name_problem(name, kind)) is not None:
            raise RegistrationRefusedError(problem)
    if header.broker_id < 0:
        raise RegistrationRefusedError(f"No broker has the id {header.broker_id}")
    for addr in (header.broker_addr, header.ha_server_addr or header.broker_addr):
        if not is_peer_addr(addr):
            raise RegistrationRefusedError(
                f"{addr[:100]!r} is not a broker's address; use host:port"
            )


def _can_be_routed(name: str, topic: TopicConfig) -> bool:
    counts = (topic.read_queue_nums, topic.write_queue_nums)
    return (
        registered_name_problem(name, "topic") is None
        and min(counts) >= 0
        and max(counts) <= QUEUE_NUMS_LIMIT
    )
