"""The requests of operators that a name server audits, with what they name and what they change."""

from typing import Any

from rocketrio_broker.audit import Change, fields_of_header
from rocketrio_broker.namesrv.kv import KVConfigManager
from rocketrio_broker.namesrv.processor import NameServerSettings
from rocketrio_broker.namesrv.routes import RouteInfoManager
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.codes import RequestCode as Code
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import cluster


def name_server_changes(
    routes: RouteInfoManager, kv_config: KVConfigManager, settings: NameServerSettings
) -> dict[int, Change]:
    """Return how a name server's requests are audited, by code."""

    def entry(header_class: Any) -> Any:
        def value(request: RemotingCommand) -> str | None:
            header = request.header(header_class)
            return kv_config.value(header.namespace, header.key)

        return value

    def changed_settings(request: RemotingCommand) -> list[str]:
        return sorted(parse_properties(request.body))

    def values(request: RemotingCommand) -> dict[str, str | None]:
        shown = settings.to_properties()
        return {name: shown.get(name) for name in changed_settings(request)}

    def write_permission(header_class: Any) -> Any:
        def ordered(request: RemotingCommand) -> dict[str, bool | None]:
            name = request.header(header_class).broker_name
            return {"write_permission_by_order": routes.ordered_write_permission(name)}

        return ordered

    def is_routed(request: RemotingCommand) -> dict[str, bool]:
        topic = request.header(cluster.DeleteTopicInNamesrvRequestHeader).topic
        return {"has_a_route": routes.pickup_topic_route_data(topic) is not None}

    return {
        Code.WIPE_WRITE_PERM_OF_BROKER: Change(
            names=fields_of_header(cluster.WipeWritePermRequestHeader),
            state=write_permission(cluster.WipeWritePermRequestHeader),
        ),
        Code.ADD_WRITE_PERM_OF_BROKER: Change(
            names=fields_of_header(cluster.AddWritePermRequestHeader),
            state=write_permission(cluster.AddWritePermRequestHeader),
        ),
        Code.DELETE_TOPIC_IN_NAMESRV: Change(
            names=fields_of_header(cluster.DeleteTopicInNamesrvRequestHeader), state=is_routed
        ),
        Code.PUT_KV_CONFIG: Change(
            names=fields_of_header(cluster.PutKVConfigRequestHeader),
            state=entry(cluster.PutKVConfigRequestHeader),
        ),
        Code.DELETE_KV_CONFIG: Change(
            names=fields_of_header(cluster.DeleteKVConfigRequestHeader),
            state=entry(cluster.DeleteKVConfigRequestHeader),
        ),
        Code.UPDATE_NAMESRV_CONFIG: Change(names=changed_settings, state=values),
    }
