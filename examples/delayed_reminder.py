"""Reminders that come later: say what of, and in how many seconds.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/delayed_reminder.py tea=5 bread=60

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. It ends when all have come, or by Ctrl-C; reminders that
are still to come then wait at the broker, also through its restart, until this program runs again.

Brokers delay by levels (1 s, 5 s, 10 s, 30 s, 1 min ... 2 h): a reminder comes at the first one that is late enough.
"""

import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import trio

from rocketrio import Message, MessageExt, Producer, open_consumer, open_producer

TOPIC = "reminders"


async def remind(producer: Producer, what: str, seconds: float) -> str:
    """Send one; its id."""
    delay = timedelta(seconds=seconds)
    due = datetime.now(UTC) + delay
    message = Message(TOPIC, what.encode(), properties={"due": due.isoformat()})
    return (await producer.send(producer.delayed(message, delay))).message_id


def lateness(message: MessageExt) -> float:
    """Seconds since it was due."""
    due = datetime.fromisoformat(message.properties["due"])
    return (datetime.now(UTC) - due).total_seconds()


async def main(wanted: dict[str, float]) -> None:
    async with open_producer(group="reminders") as producer:
        waiting = {await remind(producer, what, seconds) for what, seconds in wanted.items()}
    async with open_consumer(TOPIC, group="reminders", start_from="earliest") as consumer:
        print(f"waiting for {len(waiting)}", flush=True)
        async for message in consumer:
            print(f"{message.body.decode()}, {lateness(message):.1f} s late", flush=True)
            waiting.discard(message.message_id)
            if not waiting:
                break


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        wanted = {what: float(s) for what, s in (word.split("=") for word in sys.argv[1:])}
        trio.run(main, wanted, restrict_keyboard_interrupt_to_checkpoints=True)
