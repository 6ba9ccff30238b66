"""The topics of one broker: their settings, their version, and their file `config/topics.json`.

Invariant: every change bumps the DataVersion, is in the file before it is in the table, and advances `changes`, on
which registration waits. A change that cannot be written is not made, and raises ConfigFileError (versioned_table.py).
Invariant: no request makes the table larger than `topics_limit`; a copy of another broker's table may be larger.
Invariant: no topic has more than QUEUE_NUMS_LIMIT queues, whatever a file, a peer or a group's settings say.
Answers to: TopicConfigManager; RocketMQ reference, sections 2.2 (step 5), 5.7 and 5.8.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_broker.tables.versioned_table import VersionedTable
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol import names
from rocketrio_protocol.bodies.topics import (
    QUEUE_NUMS_LIMIT,
    READ_WRITE,
    DataVersion,
    Permission,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketrio_protocol.remoting.ports import WallClock

logger = logging.getLogger("rocketrio_broker.topics")

SCHEDULE_QUEUES: Final = 18  # One for each delay level.
_INHERITED: Final = READ_WRITE | Permission.INHERIT


class TopicConfigManager:
    """The table of topics."""

    def __init__(self, *, config: LiveConfig, file: ConfigFile, wall_clock: WallClock) -> None:
        self._config = config
        self.topic_config_table: dict[str, TopicConfig] = {
            topic.topic_name: topic for topic in self._system_topics()
        }
        self.system_topics: Final = names.SYSTEM_TOPICS | set(self.topic_config_table)
        self.table: Final = VersionedTable(
            TopicConfigSerializeWrapper,
            self.topic_config_table,
            file=file,
            possible=_within_limit,
            wall_clock=wall_clock,
        )
        """Keeps the topics in files; the table's owner syncs and closes it."""

    def load(self) -> None:
        """Load the topics from the files, and add the topics that every broker has."""
        self.table.load()

    @property
    def data_version(self) -> DataVersion:
        """The version of the table."""
        return self.table.data_version

    @property
    def changes(self) -> Watermark:
        """Counts the changes since the start."""
        return self.table.changes

    def topic_config(self, topic: str) -> TopicConfig | None:
        """Return the topic's settings, or None if the broker does not know it."""
        return self.topic_config_table.get(topic)

    def is_system_topic(self, topic: str) -> bool:
        """Return True if the topic belongs to the broker itself, so that no request may create or change it."""
        return topic in self.system_topics or topic.startswith(names.SYSTEM_TOPIC_PREFIX)

    def create_in_send(
        self, topic: str, *, default_topic: str, queue_nums: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Return the topic; create a new one from a template. None if the template does not allow that."""
        known = self.topic_config_table.get(topic)
        if known is not None:
            return known
        template = self.topic_config_table.get(default_topic)
        if template is None or not template.perm & Permission.INHERIT:
            return None
        queues = max(0, min(queue_nums, template.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=template.perm & ~Permission.INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        self.update(created)
        logger.info("topic created topic=%s template=%s queues=%d", topic, default_topic, queues)
        return created

    def create_in_send_back(
        self, topic: str, *, queue_nums: int = 1, perm: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """Return the topic; create a new one with these settings: retry, dead-letter and reply topics."""
        known = self.topic_config_table.get(topic)
        if known is not None:
            return known
        # The number may come from a group's settings, or from a message: each queue costs memory and a folder.
        queue_nums = min(queue_nums, QUEUE_NUMS_LIMIT)
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_sys_flag=sys_flag,
        )
        self.update(created)
        logger.info("topic created topic=%s queues=%d", topic, queue_nums)
        return created

    def create_retry_topics(
        self, groups: Iterable[SubscriptionGroupConfig], *, sys_flag: int = 0
    ) -> None:
        """Create the retry topics that these groups lack, in one write of the file."""
        created = {}
        for group in groups:
            topic = names.retry_topic(group.group_name)
            if topic in self.topic_config_table:
                continue
            queue_nums = min(group.retry_queue_nums, QUEUE_NUMS_LIMIT)
            created[topic] = TopicConfig(topic, queue_nums, queue_nums, topic_sys_flag=sys_flag)
        if created:
            self._grow(created)
            logger.info("topics created count=%d first=%s", len(created), next(iter(created)))

    def update(self, topic: TopicConfig) -> None:
        """Create the topic or replace its settings."""
        self.update_all([topic])

    def update_all(self, topics: Iterable[TopicConfig]) -> None:
        """Create these topics or replace their settings, in one write of the file."""
        self._grow({topic.topic_name: topic for topic in topics})

    def _grow(self, topics: Mapping[str, TopicConfig]) -> None:
        limit = self._config.broker.topics_limit
        # Before it is written: clients name topics, and would fill the table that each slave and name server copies.
        self.table.check_room(topics, limit=limit, setting="topics_limit")
        self.table.put(topics)

    def delete(self, topic: str) -> bool:
        """Remove the topic; return False if there was none."""
        return self.table.remove(topic)

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """Return all topics with their version: the answer to 21, and the file's content."""
        return TopicConfigSerializeWrapper(self.data_version, dict(self.topic_config_table))

    def registered_wrapper(self, only: Iterable[str] | None = None) -> TopicConfigSerializeWrapper:
        """Return what name servers get of all topics, or of the existing ones of these names.

        A broker that is not fully readable and writable sets its permission for each topic.
        """
        table = self.topic_config_table
        if only is not None:
            table = {name: table[name] for name in only if name in table}
        permission = self._config.broker.broker_permission
        if permission & READ_WRITE != READ_WRITE:
            table = {
                name: TopicConfig(
                    topic_name=name,
                    read_queue_nums=topic.read_queue_nums,
                    write_queue_nums=topic.write_queue_nums,
                    perm=permission,
                )
                for name, topic in table.items()
            }
        return TopicConfigSerializeWrapper(self.data_version, table)

    def replace(self, wrapper: TopicConfigSerializeWrapper) -> bool:
        """Replace the table by a master's; return False if it is the one already here."""
        return self.table.replace(wrapper.data_version, wrapper.topic_config_table)

    def join(self, wrapper: TopicConfigSerializeWrapper) -> bool:
        """Add what only a slave knows, unless its table is the older one; return False if nothing changed."""
        count = self.table.join(wrapper.data_version, wrapper.topic_config_table)
        if count is None:
            return False
        logger.info("topics taken over count=%d", count)
        return True

    def register_again(self) -> None:
        """Make the name servers read the topics again: under a new version, although no topic changed."""
        self.table.touch()

    def keep_new(self, *, at_once: bool) -> None:
        """Sync a new topic to the disk: a message that survives a power cut needs it, or it could not be read.

        `at_once` is for synchronous flush, and blocks everything for some milliseconds, once for each topic; with
        asynchronous flush the message itself may be lost for half a second, and the topic is synced in the background
        meanwhile.
        """
        if at_once:
            self.table.sync()
        else:
            self.table.sync_soon()

    def _system_topics(self) -> Iterable[TopicConfig]:
        broker = self._config.broker
        yield _topic(names.SELF_TEST_TOPIC, 1)
        if broker.auto_create_topic_enable:
            yield _topic(names.AUTO_CREATE_TOPIC, broker.default_topic_queue_nums, perm=_INHERITED)
        yield _topic(names.BENCHMARK_TOPIC, 1024)
        yield _topic(broker.cluster_name, 16, perm=_INHERITED)
        yield _topic(broker.broker_name, 1, perm=_INHERITED)
        yield _topic(names.OFFSET_MOVED_TOPIC, 1)
        yield _topic(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES)
        if broker.trace_topic_enable:
            yield _topic(names.TRACE_TOPIC, 1)
        yield _topic(f"{broker.cluster_name}_{names.REPLY_TOPIC_POSTFIX}", 1)


def _topic(name: str, queues: int, *, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


def _within_limit(table: dict[str, TopicConfig]) -> dict[str, TopicConfig]:
    """Return the table without invalid entries, and with queue counts lowered to the limit."""
    kept = {}
    for name, topic in table.items():
        problem = _entry_problem(name, topic)
        if problem is None:
            kept[name] = _lowered(topic)
        else:
            logger.warning("topic skipped topic=%r reason=%s", name, problem)
    return kept


def _entry_problem(name: str, topic: TopicConfig) -> str | None:
    if topic.topic_name != name:
        return f"its settings are those of {topic.topic_name!r}"
    if min(topic.read_queue_nums, topic.write_queue_nums) < 0:
        return "it has less than 0 queues"
    return names.kept_topic_problem(name)


def _lowered(topic: TopicConfig) -> TopicConfig:
    if max(topic.read_queue_nums, topic.write_queue_nums) <= QUEUE_NUMS_LIMIT:
        return topic
    logger.warning(
        "topic has too many queues topic=%s read=%d write=%d limit=%d",
        topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, QUEUE_NUMS_LIMIT,
    )  # fmt: skip
    return msgspec.structs.replace(
        topic,
        read_queue_nums=min(topic.read_queue_nums, QUEUE_NUMS_LIMIT),
        write_queue_nums=min(topic.write_queue_nums, QUEUE_NUMS_LIMIT),
    )
