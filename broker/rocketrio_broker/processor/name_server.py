"""What the name server answers: registration, routes, lists, key-value configuration.

Every unknown code is answered too (4.x leaves it without any answer).

Answers to: DefaultRequestProcessor, ClientRequestProcessor of the name server; RocketMQ reference, section 2.12.
"""

from collections.abc import Mapping

import attrs
import trio

from rocketrio_broker.kv_config import ORDER_TOPIC_NAMESPACE, KVConfigManager
from rocketrio_broker.route_info_manager import (
    AnotherMasterError,
    BrokerAddr,
    Registration,
    RouteInfoManager,
)
from rocketrio_protocol import fastjson
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import cluster
from rocketrio_protocol.errors import BrokerSystemError
from rocketrio_protocol.java_properties import format_properties, parse_properties
from rocketrio_protocol.register_body import body_crc32, decode_register_body
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.route import STANDARD_JSON_VERSION, KVTable, TopicList
from rocketrio_protocol.topic_config import DataVersion


@attrs.define
class NameServerSettings:
    """What an operator may change while the name server runs (318)."""

    order_message_enable: bool = False
    """Whether routes carry the text stored for the topic in the namespace ORDER_TOPIC_CONFIG."""

    def to_properties(self) -> dict[str, str]:
        """With Java's names."""
        return {"orderMessageEnable": "true" if self.order_message_enable else "false"}

    def update(self, properties: Mapping[str, str]) -> None:
        """Take over what is known here. Raises BrokerSystemError, and changes nothing, for anything else."""
        known = self.to_properties()
        if unknown := sorted(properties.keys() - known.keys()):
            raise BrokerSystemError(
                f"A running name server changes {', '.join(known)}, and not {', '.join(unknown)}"
            )
        text = properties.get("orderMessageEnable")
        if text is not None:
            self.order_message_enable = text.strip().lower() == "true"


class NameServerProcessor:
    """The name server's requests."""

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

    def processors(self) -> dict[int, Processor]:
        """Request code to method."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv_config,
            RequestCode.GET_KV_CONFIG: self.kv_config,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.kv_list,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route_info,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.unit_topics,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.config,
        }

    # ------------------------------------------------------------------------------------- brokers

    def register_broker(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.RegisterBrokerRequestHeader)
        if header.body_crc32 not in (0, body_crc32(request.body)):
            return request.response(code=ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        body = decode_register_body(
            request.body, compressed=header.compressed, version=request.version
        )
        registration = Registration(
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            broker_addr=header.broker_addr,
            ha_server_addr=header.ha_server_addr,
            topics=body.topic_config_serialize_wrapper,
            filter_servers=body.filter_server_list,
        )
        now = trio.current_time()
        try:
            result = self._routes.register_broker(registration, channel=channel, now=now)
        except AnotherMasterError as error:
            return request.response(
                cluster.RegisterBrokerResponseHeader(master_addr=error.master_addr),
                code=ResponseCode.SYSTEM_ERROR,
                remark=str(error),
            )
        order_topics = self._kv_config.namespace(ORDER_TOPIC_NAMESPACE)
        return request.response(
            cluster.RegisterBrokerResponseHeader(result.ha_server_addr, result.master_addr),
            KVTable(order_topics).to_json() if order_topics is not None else b"",
        )

    def unregister_broker(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.UnregisterBrokerRequestHeader)
        self._routes.unregister_broker(
            cluster_name=header.cluster_name,
            broker_addr=header.broker_addr,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
        )
        return request.response()

    def query_data_version(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.QueryDataVersionRequestHeader)
        asked = None
        if request.body:
            asked = fastjson.loads(request.body, DataVersion, what="DataVersion")
        key = BrokerAddr(header.cluster_name, header.broker_addr)
        known = self._routes.data_version(key)
        changed = asked is None or known != asked
        if not changed:
            self._routes.refresh(key, now=trio.current_time())
        return request.response(
            cluster.QueryDataVersionResponseHeader(changed),
            b"" if known is None else fastjson.dumps(known),
        )

    def wipe_write_permission(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.WipeWritePermRequestHeader)
        count = self._routes.change_write_permission(header.broker_name, writable=False)
        return request.response(cluster.WipeWritePermResponseHeader(count))

    def add_write_permission(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.AddWritePermRequestHeader)
        count = self._routes.change_write_permission(header.broker_name, writable=True)
        return request.response(cluster.AddWritePermResponseHeader(count))

    # ----------------------------------------------------------------------------- routes and lists

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

    def cluster_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=self._routes.cluster_info().to_classic_json())

    def all_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, list(self._routes.topic_queue_table))

    def topics_by_cluster(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.GetTopicsByClusterRequestHeader)
        return _topic_list(request, self._routes.topics_of_cluster(header.cluster))

    def system_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        topics, broker_addr = self._routes.system_topics()
        return request.response(body=TopicList(topics, broker_addr).to_json())

    def unit_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        unit, unit_sub = {
            RequestCode.GET_UNIT_TOPIC_LIST: (True, None),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (None, True),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (False, True),
        }[RequestCode(request.code)]
        return _topic_list(request, self._routes.unit_topics(unit=unit, unit_sub=unit_sub))

    def delete_topic(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.DeleteTopicInNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return request.response()

    # -------------------------------------------------------------------------------- configuration

    def put_kv_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.PutKVConfigRequestHeader)
        self._kv_config.put(header.namespace, header.key, header.value)
        return request.response()

    def kv_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.GetKVConfigRequestHeader)
        value = self._kv_config.value(header.namespace, header.key)
        if value is None:
            return request.response(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return request.response(cluster.GetKVConfigResponseHeader(value))

    def delete_kv_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.DeleteKVConfigRequestHeader)
        self._kv_config.delete(header.namespace, header.key)
        return request.response()

    def kv_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(cluster.GetKVListByNamespaceRequestHeader)
        table = self._kv_config.namespace(header.namespace)
        if table is None:
            return request.response(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {header.namespace}",
            )
        return request.response(body=KVTable(dict(table)).to_json())

    def update_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self._settings.update(parse_properties(request.body))
        return request.response()

    def config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=format_properties(self._settings.to_properties()))


def _topic_list(request: RemotingCommand, topics: list[str]) -> RemotingCommand:
    return request.response(body=TopicList(topics).to_json())
