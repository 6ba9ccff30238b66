"""The layout of a record: the table of its fields against the places that RocketMQ's reference gives them."""

import struct

import numpy as np
import pytest

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError
from rocketrio_protocol.record.layout import (
    BEFORE_BODY,
    BODY_STARTS,
    BORN_HOST_IPV6,
    HEAD_OFFSETS,
    HEAD_SIZE,
    HOSTS_IPV6_MASK,
    RECORD_OVERHEAD,
    STORE_HOST_IPV6,
    SYS_FLAG_END,
    SysFlag,
    head_struct,
    head_structs,
    pack_host,
    unpack_host,
)
from rocketrio_protocol.record.vectors import HEAD_TYPE, heads_at, items_at_every_byte

IPV4_OFFSETS = {
    "size": 0,
    "magic": 4,
    "body_crc": 8,
    "queue_id": 12,
    "flag": 16,
    "queue_offset": 20,
    "physical_offset": 28,
    "sys_flag": 36,
    "born_time": 40,
    "born_host": 48,
    "store_time": 56,
    "store_host": 64,
    "reconsume_times": 72,
    "prepared_transaction_offset": 76,
    "body_size": 84,
}


def test_fields_of_a_head_lie_where_java_writes_them() -> None:
    assert HEAD_OFFSETS == IPV4_OFFSETS
    assert (HEAD_SIZE, RECORD_OVERHEAD, SYS_FLAG_END) == (88, 91, 39)
    assert BEFORE_BODY["reconsume_times"] == 16


def test_ipv6_hosts_shift_the_body() -> None:
    assert BODY_STARTS == {
        0: 88,
        BORN_HOST_IPV6: 100,
        STORE_HOST_IPV6: 100,
        HOSTS_IPV6_MASK: 112,
    }
    assert SysFlag(HOSTS_IPV6_MASK) == SysFlag.BORN_HOST_IPV6 | SysFlag.STORE_HOST_IPV6


def test_head_struct_skips_the_fields_that_are_not_named() -> None:
    assert head_struct("size", "magic").format == ">ii"
    assert head_struct("magic", "sys_flag", "body_size").format == ">4xi28xi44xi"
    assert head_struct("store_time", hosts=BORN_HOST_IPV6).format == ">68xq"
    assert head_struct("born_host", "store_host", hosts=STORE_HOST_IPV6).format == ">48x8s8x20s"
    assert head_structs("queue_id").keys() == BODY_STARTS.keys()


def test_numpy_heads_agree_with_structs() -> None:
    fields = [HEAD_TYPE.fields[name] for name in HEAD_TYPE.names or ()] if HEAD_TYPE.fields else []
    assert [field[1] for field in fields] == list(IPV4_OFFSETS.values())
    assert HEAD_TYPE.itemsize == HEAD_SIZE
    chunk = b"??" + bytes(range(HEAD_SIZE)) + b"?" + bytes(range(HEAD_SIZE))[::-1]
    starts = np.array([2, 3 + HEAD_SIZE], np.int64)
    heads = heads_at(chunk, starts)
    for name in ("size", "queue_offset", "physical_offset", "store_time", "body_size"):
        field = head_struct(name)
        expected = [field.unpack_from(chunk, start)[0] for start in starts.tolist()]
        assert heads[name].tolist() == expected


def test_items_at_every_byte_of_too_few_bytes_are_none() -> None:
    assert len(items_at_every_byte(b"abc", ">i4")) == 0
    assert items_at_every_byte(b"\0\0\0\1\2", ">i4").tolist() == [1, 0x102]


def test_unpack_host_of_a_packed_host_returns_it() -> None:
    for ip, size in (("10.0.0.7", 8), ("::1", 20)):
        packed = pack_host(ip, 10911)
        assert (len(packed), unpack_host(packed)) == (size, (ip, 10911))


def test_pack_host_and_unpack_host_of_invalid_input_raise() -> None:
    with pytest.raises(LocalProtocolError):
        pack_host("broker-a", 10911)
    with pytest.raises(LocalProtocolError):
        pack_host("10.0.0.7", -1)
    with pytest.raises(RemoteProtocolError):
        unpack_host(struct.pack(">q", 1)[:7])
