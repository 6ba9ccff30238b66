"""The body of 907: as Java writes and reads it, with rocketrio's members beside."""

import json

import pytest

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.status import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    OwnStatus,
)

# What fastjson makes of the getters of HARuntimeInfo in 5.3.3, on a master with one slave; null members are left out.
JAVAS = (
    b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,"maxOffset":0,'
    b'"transferredByteInSecond":0},"haConnectionInfo":[{"addr":"10.0.0.2:41724","diff":12,"inSync":true,'
    b'"slaveAckOffset":988,"transferFromWhere":1000,"transferredByteInSecond":345}],"inSyncSlaveNums":1,'
    b'"master":true,"masterCommitLogMaxOffset":1000}'
)


def test_a_body_of_javas_is_written_to_the_byte() -> None:
    slave = HAConnectionRuntimeInfo(
        addr="10.0.0.2:41724",
        diff=12,
        in_sync=True,
        slave_ack_offset=988,
        transfer_from_where=1000,
        transferred_byte_in_second=345,
    )
    info = HARuntimeInfo(
        master=True,
        master_commit_log_max_offset=1000,
        in_sync_slave_nums=1,
        ha_connection_info=[slave],
    )
    assert info.to_json() == JAVAS
    assert HARuntimeInfo.from_json(JAVAS) == info


def test_own_fields_of_a_status_are_encoded_and_decoded() -> None:
    info = HARuntimeInfo(
        ha_client_runtime_info=HAClientRuntimeInfo(
            master_addr="h:1", rocketrio_state="following", rocketrio_acknowledges="disk"
        ),
        rocketrio=OwnStatus(role="slave", broker_id=1, answered={"PUT_OK": 2}),
    )
    told = json.loads(info.to_json())
    assert HARuntimeInfo.from_json(info.to_json()) == info
    own = {name for name in told["haClientRuntimeInfo"] if name.startswith("rocketrio")}
    assert own == {"rocketrioState", "rocketrioAcknowledges"}
    assert set(told) - set(json.loads(JAVAS)) == {"rocketrio"}


def test_unknown_members_are_skipped_and_wrong_types_are_refused() -> None:
    assert HARuntimeInfo.from_json(b'{"master":true,"later":[1]}').master
    with pytest.raises(RemoteProtocolError, match="HA status"):
        HARuntimeInfo.from_json(b"[]")
