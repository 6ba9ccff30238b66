"""What the rules of access control ask about a broker."""

from collections.abc import Iterable

import attrs

from rocketrio_broker.delay.delayed_puts import stored_message
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.decode import scan_record


@attrs.frozen
class AccessFacts:
    """A broker's settings, topics and messages."""

    config: LiveConfig
    topics: TopicConfigManager
    consumer_offsets: ConsumerOffsetManager
    store: MessageStore

    @property
    def cluster_name(self) -> str:
        return self.config.broker.cluster_name

    @property
    def creates_topics(self) -> bool:
        return self.config.broker.auto_create_topic_enable and not self.store.is_slave

    def has_topic(self, name: str) -> bool:
        return name in self.topics.topic_config_table

    def topics_of_group(self, group: str) -> Iterable[str]:
        return self.consumer_offsets.topics_of_group(group)

    def stored_topic(self, address: int) -> str | None:
        record = self.store.message_at(address, unconfirmed=True)
        return (
            None if record is None else scan_record(record, 0, len(record), check_crc=False).topic
        )

    def stored_message(self, address: int) -> MessageExt | None:
        return stored_message(self.store, address)
