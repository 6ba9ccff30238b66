"""Compares the clocks of masters with this machine's, by a message to each: for brokers that report no clock.

Answers to: nothing in Apache's tools.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from rocketrio.admin.admin import Admin
from rocketrio.admin.cluster_status import clock_ahead
from rocketrio.admin.doctor_answers import DoctorAnswers
from rocketrio.producing.produce import open_producer
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import Message

CLOCK_BODY: Final = b"rocketrio doctor: whose clock is right?"


async def compare_clocks(admin: Admin, topic: str) -> dict[str, float | Error]:
    """Store a message of the topic on each of its masters; return how many seconds each clock is ahead, by broker name.

    Raises RouteNotFoundError for an unknown topic. A master that did not take the message is an Error.
    """
    found: dict[str, float | Error] = {}
    clock = admin.client.wall_clock
    async with open_producer(client=admin.client, auto_create_topic=False, retries=0) as producer:
        queues = {queue.broker_name: queue for queue in await producer.queues(topic)}
        for name, queue in sorted(queues.items()):
            try:
                asked_ms = clock.now_ms()
                sent = await producer.send(Message(topic, CLOCK_BODY), queue=queue)
                answered_ms = clock.now_ms()
                stored = await admin.view_message(sent.offset_message_id)
            except Error as error:
                found[name] = error
            else:
                found[name] = clock_ahead(stored.store_time_ms, asked_ms, answered_ms)
    return found


def with_clocks(answers: DoctorAnswers, found: Mapping[str, float | Error]) -> DoctorAnswers:
    """Return the answers with the clocks of masters that reported none."""
    brokers = []
    unknown = dict(answers.unknown)
    for one in answers.cluster.brokers:
        ahead = found.get(one.broker_name)
        if one.role == "slave" or one.clock_ahead is not None or ahead is None:
            brokers.append(one)
        elif isinstance(ahead, Error):
            unknown[f"clock of {one.broker_name}"] = ahead.what
            brokers.append(one)
        else:
            brokers.append(attrs.evolve(one, clock_ahead=ahead))
    return attrs.evolve(
        answers, cluster=attrs.evolve(answers.cluster, brokers=brokers), unknown=unknown
    )
