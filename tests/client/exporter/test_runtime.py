from rocketrio.exporter.runtime import rate, runtime_numbers

APACHES = {
    "msgPutTotalTodayNow": "12",
    "putTps": "1.5 2.5 ",
    "getTotalTps": "0.0",
    "getTransferredTps": "3.5 ",
    "putMessageDistributeTime": "[<=0ms]:7 [0~10ms]:2 [10s~]:1 ",
    "commitLogDirCapacity": "Total : 251.0 GiB, Free : 78.5 GiB.",
    "remainHowManyDataToFlush": "42 B",
    "putLatency99": "null",
    "earliestMessageTimeStamp": "-1",
    "bootTimestamp": "1795491504498",
}


def test_numbers_of_apaches_texts_have_the_names_of_the_exporter() -> None:
    assert dict(runtime_numbers(APACHES)) == {
        "msg_put_total_today_now": 12,
        "put_tps10": 1.5,
        "put_tps60": 2.5,
        "gettotal_tps10": 0,
        "gettransfered_tps10": 3.5,
        "pmdt_0ms": 7,
        "pmdt_0to10ms": 2,
        "pmdt_10stomore": 1,
        "commitlogdir_capacity_total": 251 * 2**30,
        "commitlogdir_capacity_free": 78.5 * 2**30,
        "remain_howmanydata_toflush": 42,
        "earliest_message_timestamp": -1,
    }


def test_text_that_is_no_number_has_none() -> None:
    assert dict(runtime_numbers({"putTps": "", "msgPutTotalTodayNow": "many"})) == {}
    assert dict(runtime_numbers({"putMessageDistributeTime": "null"})) == {}
    assert rate({}, "putTps") is None
    assert rate({"putTps": "2.5 1"}, "putTps") == 2.5
