"""What brokers send to a name server when they register."""

from collections.abc import Sequence
from typing import Any

import msgspec

from rocketrio_protocol.bodies.registration import RegisterBrokerBody, encode_register_body
from rocketrio_protocol.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketrio_protocol.commands import cluster

ADDR = "10.0.0.9:9876"


def registration(
    *, broker_id: int = 0, body: bytes | None = None, crc: int = 0, **changes: Any
) -> tuple[cluster.RegisterBrokerRequestHeader, bytes]:
    header = msgspec.structs.replace(
        cluster.RegisterBrokerRequestHeader(
            broker_name="broker-a",
            broker_addr=f"10.0.0.1:1091{broker_id}",
            cluster_name="lab",
            ha_server_addr="10.0.0.1:10912",
            broker_id=broker_id,
            body_crc32=crc,
        ),
        **changes,
    )
    wrapper = TopicConfigSerializeWrapper(DataVersion(1, 1), {"T": TopicConfig("T", 4, 4)})
    return header, encode_register_body(RegisterBrokerBody(wrapper)) if body is None else body


def registered(
    *topics: TopicConfig, servers: Sequence[str] = (), compressed: bool = False
) -> bytes:
    wrapper = TopicConfigSerializeWrapper(
        DataVersion(1, 1), {each.topic_name: each for each in topics}
    )
    return encode_register_body(RegisterBrokerBody(wrapper, list(servers)), compressed=compressed)
