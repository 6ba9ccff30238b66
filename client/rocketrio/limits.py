"""Limits and defaults that help texts name: this module imports nothing, so that a help text needs no client."""

from typing import Final

MAX_QUEUES: Final = 65_535
"""Maximum queues of a topic on each broker."""
DEFAULT_TOPIC_QUEUE_NUMS: Final = 4
"""The number of queues requested when a send creates its topic (defaultTopicQueueNums)."""
MAX_MESSAGE_SIZE: Final = 4 * 1024 * 1024
"""Maximum bytes of a body before compression, and of a whole batch (maxMessageSize of producer and broker)."""
QUIET_SECONDS: Final = 35.0
"""Producers read routes every 30 seconds; a log that has not grown for this long gets no more messages from them."""
VIEW_MAX_MESSAGES: Final = 1000
"""The dead letters that are shown unless the user says how many."""
API_TIMEOUT: Final = 3.0
"""Seconds that a server has to answer a question (mqClientApiTimeout), unless `request_timeout=` gives others."""
ADMIN_TIMEOUT: Final = 5.0
"""The same for questions of administration (timeoutMillis of DefaultMQAdminExt)."""
BENCH_MESSAGES: Final = 10_000
"""The messages of a measurement that has no other end."""
EXPORTER_NAMES: Final = ("native", "exporter", "own")
"""The sets of names under which `rocketrio exporter` serves metrics."""
