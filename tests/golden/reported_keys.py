"""What `brokerStatus` and `getBrokerConfig` show: the keys that the RocketMQ reference names (sections 2.11 and 12).

Each with the form of its values, which Apache's recorded answers have too.
"""

import re

NUMBER = r"-?\d+"
DECIMAL = r"-?\d+\.\d+"
SWITCH = r"true|false"
RATES = r"\d+\.\d+(E-?\d+)? (\d+\.\d+(E-?\d+)?)? (\d+\.\d+(E-?\d+)?)?"
"""Over 10 s, a minute and ten; empty until it was sampled."""
SIZE = r"\d+(\.\d+)? ?[KMGTPE]?i?B"
NAME = r"[\w.-]+"

_POOLS = ("send", "pull", "query")

RUNTIME = {
    "brokerVersionDesc": r"V\d+_\d+_\d+",
    "brokerVersion": NUMBER,
    **{f"msg{what}Total{when}": NUMBER for what in ("Put", "Get")
       for when in ("YesterdayMorning", "TodayMorning", "TodayNow")},
    **{f"{pool}ThreadPoolQueue{what}": NUMBER for pool in _POOLS
       for what in ("Size", "Capacity", "HeadWaitTimeMills")},
    "EndTransactionQueueSize": NUMBER,
    "EndTransactionThreadPoolQueueCapacity": NUMBER,
    "dispatchBehindBytes": NUMBER,
    "pageCacheLockTimeMills": NUMBER,
    "earliestMessageTimeStamp": NUMBER,
    "startAcceptSendRequestTimeStamp": NUMBER,
    "commitLogDirCapacity": rf"Total : {SIZE}, Free : {SIZE}\.",
    "remainTransientStoreBufferNumbs": NUMBER,
    "remainHowManyDataToFlush": SIZE,
    "bootTimestamp": r"1\d{12}",
    "runtime": r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]",
    "putMessageEntireTimeMax": NUMBER,
    "putMessageTimesTotal": NUMBER,
    "putMessageFailedTimes": NUMBER,
    "putMessageSizeTotal": NUMBER,
    "putMessageDistributeTime": r"null|(\[.*?\]:\d+(\.\d+)?%? ?)+",
    "putMessageAverageSize": DECIMAL,
    "dispatchMaxBuffer": NUMBER,
    "getMessageEntireTimeMax": NUMBER,
    **dict.fromkeys(("putTps", "getFoundTps", "getMissTps", "getTotalTps"), RATES),
    "putLatency99": DECIMAL,
    "putLatency999": DECIMAL,
    "commitLogDiskRatio": DECIMAL,
    "consumeQueueDiskRatio": DECIMAL,
    "commitLogMinOffset": NUMBER,
    "commitLogMaxOffset": NUMBER,
}  # fmt: skip
RUNTIME_OF = {
    "4.9.7": {"getTransferedTps": RATES},
    "5.3.3": {
        "getTransferredTps": RATES,
        "brokerActive": SWITCH,
        **{f"{pool}ThreadPoolQueue{what}": NUMBER for pool in ("litePull", "ack")
           for what in ("Size", "Capacity", "HeadWaitTimeMills")},
    },
}  # fmt: skip
"""What one version spells in its own way or has alone; ours has both."""
RUNTIME_WITHOUT_MEANING = (
    "remainHowManyDataToCommit",  # Apache's own has it with a transient store pool alone.
    "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps",
)  # fmt: skip
DELAY_LEVEL = r"\d+,\d+"
"""Form of `scheduleMessageOffset_N`: delivered, and the level's end."""

_COUNTS = """accessMessageInMemoryMaxRatio brokerId brokerPermission cleanResourceInterval defaultTopicQueueNums
diskMaxUsedSpaceRatio fileReservedTime flushConsumeQueueThoroughInterval flushConsumerOffsetInterval
flushDelayOffsetInterval flushIntervalCommitLog flushIntervalConsumeQueue haHousekeepingInterval haListenPort
haSendHeartbeatInterval haTransferBatchSize mappedFileSizeCommitLog mappedFileSizeConsumeQueue maxHashSlotNum
maxIndexNum maxMessageSize maxMsgsNumBatch maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory registerBrokerTimeoutMills registerNameServerPeriod
shortPollingTimeMills slaveTimeout syncFlushTimeout transactionCheckInterval transactionCheckMax transactionTimeOut"""
_SWITCHES = """aclEnable autoCreateSubscriptionGroup autoCreateTopicEnable checkCRCOnRecover cleanFileForciblyEnable
compressedRegister enablePropertyFilter longPollingEnable messageIndexEnable notifyConsumerIdsChangedEnable
offsetCheckInSlave rejectTransactionMessage slaveReadEnable storeReplyMessageEnable traceTopicEnable"""

SETTINGS = {
    **dict.fromkeys(_COUNTS.split(), NUMBER),
    **dict.fromkeys(_SWITCHES.split(), SWITCH),
    "brokerClusterName": NAME,
    "brokerRole": "ASYNC_MASTER|SYNC_MASTER|SLAVE",
    "deleteWhen": r"\d\d(;\d\d)*",
    "flushDiskType": "ASYNC_FLUSH|SYNC_FLUSH",
    "regionId": NAME,
}
SETTINGS_OF = {"4.9.7": {"haSlaveFallbehindMax": NUMBER}, "5.3.3": {"maxFilterMessageSize": NUMBER}}
_WITHOUT_MEANING = """allAckInSyncStateSet brokerFastFailureEnable channelExpiredTimeout
commitIntervalCommitLog compatibleWithOldNameSrv consumerFallbehindThreshold
consumerOffsetUpdateVersionStep defaultQueryMaxNum deleteCommitLogFilesInterval
destroyMapedFileIntervalForcibly disableConsumeIfConsumerReadSlowly diskFallRecorded
duplicationEnable enableConsumeQueueExt filterSupportRetry flushCommitLogLeastPages
flushCommitLogThoroughInterval flushCommitLogTimed flushConsumeQueueLeastPages forceRegister
haMaxGapNotInSync haMaxTimeSlaveNotCatchup inSyncReplicas mappedFileSizeConsumeQueueExt
maxRecoveryCommitlogFiles messageIndexSafe minInSyncReplicas osPageCacheBusyTimeOutMills
pullBatchMaxMessageCount pullThreadPoolQueueCapacity putMessageTimeout
sendMessageThreadPoolNums sendThreadPoolQueueCapacity totalReplicas transferMsgByHeap
transientStorePoolEnable travelCqFileNumWhenGetMessage useReentrantLockWhenPutMessage
useServerSideResetOffset waitTimeMillsInHeartbeatQueue waitTimeMillsInPullQueue
waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue"""
SETTINGS_WITHOUT_MEANING = frozenset(_WITHOUT_MEANING.split())
"""Named by the reference, and of no meaning to a rocketrio broker: docs/COMPATIBILITY.md says which."""


def wrong_forms(told: dict[str, str], forms: dict[str, str]) -> dict[str, str | None]:
    """The keys that are missing or whose values have another form."""
    return {
        name: told.get(name)
        for name, form in forms.items()
        if name not in told or re.fullmatch(form, told[name]) is None
    }
