"""Which header classes belong to a request code: the list of everything this implementation speaks."""

from typing import Final

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.commands import admin, client, cluster, offset, pull, query, send
from rocketrio_protocol.header_fields import EmptyHeader, Header, RequestHeader

_ANSWERS: Final[dict[type[RequestHeader], type[Header]]] = {
    send.SendMessageRequestHeader: send.SendMessageResponseHeader,
    send.SendMessageRequestHeaderV2: send.SendMessageResponseHeader,
    send.SendBatchMessageRequestHeader: send.SendMessageResponseHeader,
    pull.PullMessageRequestHeader: pull.PullMessageResponseHeader,
    pull.LitePullMessageRequestHeader: pull.PullMessageResponseHeader,
    offset.QueryConsumerOffsetRequestHeader: offset.QueryConsumerOffsetResponseHeader,
    offset.UpdateConsumerOffsetRequestHeader: offset.UpdateConsumerOffsetResponseHeader,
    offset.GetMaxOffsetRequestHeader: offset.OffsetResponseHeader,
    offset.GetMinOffsetRequestHeader: offset.OffsetResponseHeader,
    offset.SearchOffsetRequestHeader: offset.OffsetResponseHeader,
    offset.GetEarliestMsgStoretimeRequestHeader: offset.TimestampResponseHeader,
    query.QueryMessageRequestHeader: query.QueryMessageResponseHeader,
    query.ViewMessageRequestHeader: EmptyHeader,
    client.HeartBeatRequestHeader: EmptyHeader,
    client.UnregisterClientRequestHeader: EmptyHeader,
    client.GetConsumerListByGroupRequestHeader: EmptyHeader,
    client.NotifyConsumerIdsChangedRequestHeader: EmptyHeader,
    client.CheckClientConfigRequestHeader: EmptyHeader,
    cluster.RegisterBrokerRequestHeader: cluster.RegisterBrokerResponseHeader,
    cluster.UnregisterBrokerRequestHeader: EmptyHeader,
    cluster.QueryDataVersionRequestHeader: cluster.QueryDataVersionResponseHeader,
    cluster.GetRouteInfoRequestHeader: EmptyHeader,
    cluster.GetBrokerClusterInfoRequestHeader: EmptyHeader,
    cluster.GetAllTopicListRequestHeader: EmptyHeader,
    cluster.GetTopicsByClusterRequestHeader: EmptyHeader,
    cluster.GetSystemTopicListFromNsRequestHeader: EmptyHeader,
    cluster.DeleteTopicInNamesrvRequestHeader: EmptyHeader,
    cluster.WipeWritePermRequestHeader: cluster.WipeWritePermResponseHeader,
    cluster.AddWritePermRequestHeader: cluster.AddWritePermResponseHeader,
    cluster.PutKVConfigRequestHeader: EmptyHeader,
    cluster.GetKVConfigRequestHeader: cluster.GetKVConfigResponseHeader,
    cluster.DeleteKVConfigRequestHeader: EmptyHeader,
    cluster.GetKVListByNamespaceRequestHeader: EmptyHeader,
    admin.CreateTopicRequestHeader: EmptyHeader,
    admin.DeleteTopicInBrokerRequestHeader: EmptyHeader,
    admin.GetAllTopicConfigRequestHeader: EmptyHeader,
    admin.GetAllSubscriptionGroupConfigRequestHeader: EmptyHeader,
    admin.GetAllConsumerOffsetRequestHeader: EmptyHeader,
    admin.GetAllDelayOffsetRequestHeader: EmptyHeader,
    admin.UpdateAndCreateSubscriptionGroupRequestHeader: EmptyHeader,
    admin.DeleteSubscriptionGroupRequestHeader: EmptyHeader,
    admin.GetBrokerRuntimeInfoRequestHeader: EmptyHeader,
    admin.GetBrokerConfigRequestHeader: admin.GetBrokerConfigResponseHeader,
    admin.UpdateBrokerConfigRequestHeader: EmptyHeader,
    admin.GetTopicStatsInfoRequestHeader: EmptyHeader,
    admin.GetConsumeStatsRequestHeader: EmptyHeader,
    admin.GetConsumerConnectionListRequestHeader: EmptyHeader,
    admin.GetProducerConnectionListRequestHeader: EmptyHeader,
    admin.QueryTopicConsumeByWhoRequestHeader: EmptyHeader,
    admin.QueryConsumeTimeSpanRequestHeader: EmptyHeader,
    admin.GetSystemTopicListFromBrokerRequestHeader: EmptyHeader,
    admin.QueryCorrectionOffsetRequestHeader: EmptyHeader,
    admin.CloneGroupOffsetRequestHeader: EmptyHeader,
    admin.ViewBrokerStatsDataRequestHeader: EmptyHeader,
    admin.GetBrokerConsumeStatsRequestHeader: EmptyHeader,
    admin.ResetOffsetRequestHeader: EmptyHeader,
    admin.GetTopicConfigRequestHeader: EmptyHeader,
    admin.GetSubscriptionGroupConfigRequestHeader: EmptyHeader,
    admin.GetBrokerHAStatusRequestHeader: EmptyHeader,
    admin.ChangeBrokerRoleRequestHeader: EmptyHeader,
}

COMMANDS: Final[dict[RequestCode, tuple[type[RequestHeader], type[Header]]]] = {
    request.code: (request, answer) for request, answer in _ANSWERS.items()
}
"""Request code to (header of the request, header of its answer)."""
