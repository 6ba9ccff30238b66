"""Reads the numbers in the texts that brokers answer to 28, under the names that rocketmq-exporter gives them.

Answers to: BrokerRuntimeStats of rocketmq-exporter.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

_PLAIN: Final = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "commitlog_minoffset": "commitLogMinOffset",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
}
_RATES: Final = {
    "getfound_tps": "getFoundTps",
    "gettotal_tps": "getTotalTps",
    "gettransfered_tps": "getTransferedTps",
    "getmiss_tps": "getMissTps",
    "put_tps": "putTps",
}
_SPELT_ANEW: Final = {"getTransferedTps": "getTransferredTps"}
"""What brokers of RocketMQ 5 call it; rocketmq-exporter has no numbers there."""
_WINDOWS: Final = ("10", "60", "600")
_DISTRIBUTION: Final = {
    "0ms": "<=0ms",
    "0to10ms": "0~10ms",
    "10to50ms": "10~50ms",
    "50to100ms": "50~100ms",
    "100to200ms": "100~200ms",
    "200to500ms": "200~500ms",
    "500to1s": "500ms~1s",
    "1to2s": "1~2s",
    "2to3s": "2~3s",
    "3to4s": "3~4s",
    "4to5s": "4~5s",
    "5to10s": "5~10s",
    "10stomore": "10s~",
}
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE]-?\d+)?")
_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def runtime_numbers(runtime: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    """Yield name and value of what the texts say; what is missing or no number has none."""
    for name, key in _PLAIN.items():
        if _NUMBER.fullmatch(text := runtime.get(key, "").strip()):
            yield name, float(text)
    for name, key in _RATES.items():
        texts = runtime.get(key) or runtime.get(_SPELT_ANEW.get(key, ""), "")
        for window, text in zip(_WINDOWS, texts.split(), strict=False):
            if _NUMBER.fullmatch(text):
                yield f"{name}{window}", float(text)
    counts = dict(re.findall(r"\[(\S+?)\]:(\d+)", runtime.get("putMessageDistributeTime") or ""))
    for name, step in _DISTRIBUTION.items():
        if step in counts:
            yield f"pmdt_{name}", float(counts[step])
    capacity = runtime.get("commitLogDirCapacity", "")
    for name, word in (("total", "Total"), ("free", "Free")):
        if size := re.search(rf"{word} : ([\d.]+) (\w+)", capacity):
            yield f"commitlogdir_capacity_{name}", float(size[1]) * _UNITS.get(size[2], 1)
    if rest := re.fullmatch(r"(\d+) B", runtime.get("remainHowManyDataToFlush", "")):
        yield "remain_howmanydata_toflush", float(rest[1])


def rate(runtime: Mapping[str, str], key: str) -> float | None:
    """Return a rate over the shortest window; None if it is unknown."""
    first, *_ = [*runtime.get(key, "").split(), ""]
    return float(first) if _NUMBER.fullmatch(first) else None
