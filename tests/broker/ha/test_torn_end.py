"""Whose copy of a record is damaged: decided without any log or peer."""

from operator import ne

from hypothesis import given
from hypothesis import strategies as st
from tests.support.records import plain_record

from rocketrio_broker.ha.torn_end import Damage, EndJudgement, judge, records_of
from rocketrio_protocol.record.encode import encode_padding
from rocketrio_protocol.record.layout import pack_host

FILE_SIZE = 4096
START = 3 * FILE_SIZE
COUNT = 40
PROPERTIES = b"KEYS\1key\2TAGS\1tag\2CLUSTER\1DefaultCluster"


def log_of(host: int = 1) -> bytes:
    """The same messages, as the broker on this host stores them; two files."""
    log = bytearray()
    for number in range(COUNT):
        for _ in range(2):
            data = plain_record(
                queue_offset=number,
                physical_offset=START + len(log),
                store_time_ms=1_700_000_000_000 + 1000 * host,
                store_host=pack_host(f"10.0.0.{host}", 10911),
                body=b"body %d" % number,
                properties=PROPERTIES,
            )
            room = FILE_SIZE - len(log) % FILE_SIZE
            if len(data) + 8 <= room:
                break
            log += encode_padding(room).ljust(room, b"\0")
        log += data
    assert len(log) > FILE_SIZE
    return bytes(log)


LOG = log_of()
SIZE = len(LOG)
LAST = records_of([LOG], START, FILE_SIZE)[-1][0]


def judged(own: bytes, *others: bytes, crashed: bool = False) -> EndJudgement:
    peers = {f"peer {number}": other for number, other in enumerate(others)}
    records = records_of([own, *others], START, FILE_SIZE)
    return judge(own, peers, START, records, crashed_end=START + SIZE if crashed else 0)


def damaged(at: int, data: bytes, log: bytes = LOG) -> bytes:
    return (log[:at] + data + log[at + len(data) :])[: len(log)]


def mended(own: bytes, judgement: EndJudgement) -> bytes:
    result = bytearray(own)
    for at, whole in judgement.replacements.items():
        result[at : at + len(whole)] = whole
    return bytes(result)


def test_equal_logs_are_not_damaged_whatever_the_length_of_the_other() -> None:
    for size in (0, 1, LAST, SIZE - 1, SIZE):
        assert judged(LOG, LOG[:size], crashed=True) == EndJudgement()


def test_all_records_are_found_over_the_end_of_a_file() -> None:
    records = records_of([LOG], START, FILE_SIZE)
    assert len(records) == COUNT + 1  # And the padding's head.
    assert sum(records[-1]) == SIZE
    assert records_of([damaged(5, b"xx"), LOG], START, FILE_SIZE) == records


def test_torn_properties_are_their_holders_damage() -> None:
    torn = damaged(SIZE - 17, bytes(17))
    assert judged(torn, LOG).replacements == {LAST: LOG[LAST:]}
    assert judged(LOG, torn, crashed=True).damaged_peers == {"peer 0"}


def test_hidden_damage_is_attributed_to_the_crashed_or_outvoted_log() -> None:
    odd, other = damaged(SIZE - 1, b"x"), damaged(SIZE - 1, b"y")
    assert judged(odd, LOG).damage is Damage.UNDECIDED
    assert judged(odd, LOG, crashed=True).replacements == {LAST: LOG[LAST:]}
    assert judged(odd, LOG, LOG).replacements == {LAST: LOG[LAST:]}
    assert judged(LOG, LOG, odd, crashed=True).damaged_peers == {"peer 1"}
    assert judged(odd, LOG, other).damage is Damage.UNDECIDED
    assert judged(odd, LOG, other, crashed=True).damage is Damage.OWN


def test_damage_below_what_was_there_at_the_crash_only() -> None:
    odd = damaged(SIZE - 1, b"x")
    records = records_of([odd], START, FILE_SIZE)
    judgement = judge(odd, {"peer": LOG}, START, records, crashed_end=START + LAST)
    assert judgement.damage is Damage.UNDECIDED


def test_the_same_messages_stored_by_two_masters_are_two_histories() -> None:
    other = log_of(host=2)
    assert len(other) == SIZE
    assert judged(LOG, other, crashed=True).damage is Damage.UNDECIDED
    # Also where it begins after what both have, and where one of them is torn.
    assert judged(LOG, LOG[:LAST] + other[LAST:], crashed=True).damage is Damage.UNDECIDED
    torn = damaged(SIZE - 17, bytes(17), LOG[:LAST] + other[LAST:])
    assert judged(torn, LOG, crashed=True).damage is Damage.UNDECIDED


def test_record_of_one_history_does_not_repair_another() -> None:
    other = LOG[:LAST] + log_of(host=2)[LAST:]
    torn = damaged(SIZE - 17, bytes(17))
    assert judged(torn, LOG, other).replacements == {LAST: LOG[LAST:]}


@given(
    st.integers(0, SIZE - 1),
    st.sampled_from([bytes(17), b"\0", b"x", b"\xb7", bytes(1500)]),
    st.integers(0, SIZE),
)
def test_a_crashed_log_is_whole_again_as_far_as_its_peer_goes(
    at: int, data: bytes, peer_size: int
) -> None:
    own = damaged(at, data)
    peer = LOG[:peer_size]
    result = mended(own, judged(own, peer, crashed=True))
    for at, size in records_of([LOG], START, FILE_SIZE):
        if at + size <= peer_size:
            assert result[at : at + size] == LOG[at : at + size]
        else:
            assert result[at : at + size] == own[at : at + size]


@given(st.integers(0, SIZE - 1), st.sampled_from([bytes(17), b"x", bytes(1500)]))
def test_a_whole_log_is_never_changed_for_a_damaged_one(at: int, data: bytes) -> None:
    other = damaged(at, data)
    judgement = judged(LOG, other)
    assert not judgement.replacements
    # Nor if it crashed, where more than one byte shows the damage.
    for at, size in records_of([LOG], START, FILE_SIZE):
        differing = sum(map(ne, LOG[at : at + size], other[at : at + size]))
        if differing > 1:
            assert at not in judged(LOG, other, crashed=True).replacements
