"""Apache's C++ client as a program that takes orders, a JSON line each way: the other end of `other_clients.py`.

The library comes with the package `rocketmq` (librocketmq 1.2, loaded by ctypes); this only turns lines into its calls.
"""

import json
import queue
import sys
import time
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage, SendResult
from rocketmq.ffi import MessageModel

NAME_SERVERS = sys.argv[1]
ACCOUNT = sys.argv[2:]
"""Access key and secret key; empty without an account."""
CHANNEL = "LOCAL"
"""The library sends it as the field OnsChannel, and signs it."""
_producers: dict[str, Producer] = {}
_receivers: dict[str, tuple[PushConsumer, "queue.SimpleQueue[dict[str, Any]]"]] = {}


def _introduce(client: Producer | PushConsumer | PullConsumer) -> None:
    """Name the name servers and the account."""
    client.set_namesrv_addr(NAME_SERVERS)
    if ACCOUNT:
        client.set_session_credentials(*ACCOUNT, CHANNEL)


def _producer() -> Producer:
    if "cpp-producer" not in _producers:
        made = Producer("cpp-producer", timeout=10_000)
        _introduce(made)
        made.start()
        _producers["cpp-producer"] = made
    return _producers["cpp-producer"]


def _message(asked: dict[str, Any], body: str) -> Message:
    made = Message(asked["topic"])
    made.set_body(body)
    if "tags" in asked:
        made.set_tags(asked["tags"])
    if "keys" in asked:
        made.set_keys(" ".join(asked["keys"]))
    if "delay_level" in asked:
        made.set_delay_time_level(asked["delay_level"])
    for name, value in asked.get("properties", {}).items():
        made.set_property(name, value)
    return made


def _sent(result: SendResult) -> dict[str, Any]:
    return {
        "status": int(result.status),
        "message_id": result.msg_id,
        "queue_offset": result.offset,
    }


def send(asked: dict[str, Any]) -> Any:
    message = _message(asked, asked["body"])
    mode = asked.get("mode", "sync")
    if mode == "oneway":
        return _producer().send_oneway(message)
    if mode == "sync":
        return _sent(_producer().send_sync(message))
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    _producer().send_async(message, answers.put, answers.put)
    answer = answers.get(timeout=15)
    if isinstance(answer, Exception):
        raise answer
    return _sent(answer)


def send_batch(asked: dict[str, Any]) -> Any:
    return _sent(_producer().send_batch([_message(asked, body) for body in asked["bodies"]]))


def send_ordered(asked: dict[str, Any]) -> Any:
    place = sum(asked["key"].encode())
    return [
        _sent(_producer().send_orderly(_message(asked, body), place)) for body in asked["bodies"]
    ]


def _received(message: RecvMessage) -> dict[str, Any]:
    def text(value: bytes | None) -> str:
        return (value or b"").decode()

    return {
        "topic": message.topic,
        "body": text(message.body),
        "tags": text(message.tags),
        "keys": text(message.keys),
        "message_id": message.id,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "reconsume_times": message.reconsume_times,
        "properties": {"colour": text(message["colour"])},
    }


class _ConsumeAgainError(Exception):
    """Has the library hand the message back."""


def push_start(asked: dict[str, Any]) -> None:
    model = MessageModel.BROADCASTING if asked.get("broadcast") else MessageModel.CLUSTERING
    made = PushConsumer(asked["group"], orderly=asked.get("orderly", False), message_model=model)
    _introduce(made)
    made.set_instance_name(asked["group"])
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def handle(message: RecvMessage) -> None:
        messages.put(_received(message))
        if message.reconsume_times < asked.get("fail_times", 0):
            raise _ConsumeAgainError

    made.subscribe(asked["topic"], handle, asked.get("tags", "*"))
    made.start()
    _receivers[asked["group"]] = made, messages


def push_take(asked: dict[str, Any]) -> list[dict[str, Any]]:
    _, messages = _receivers[asked["group"]]
    over = time.monotonic() + asked["timeout"]
    taken: list[dict[str, Any]] = []
    while len(taken) < asked["count"] and (left := over - time.monotonic()) > 0:
        try:
            taken.append(messages.get(timeout=left))
        except queue.Empty:
            break
    return taken


def push_stop(asked: dict[str, Any]) -> None:
    consumer, _ = _receivers.pop(asked["group"])
    consumer.shutdown()


def pull(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """All that the queues of a topic hold."""
    consumer = PullConsumer(asked["group"])
    _introduce(consumer)
    consumer.start()
    PullConsumer.offset_table = {}  # of the class: the groups of one process share it
    try:
        return [_received(message) for message in consumer.pull(asked["topic"])]
    finally:
        consumer.shutdown()


OPS: dict[str, Callable[[dict[str, Any]], Any]] = {
    call.__name__: call
    for call in (send, send_batch, send_ordered, push_start, push_take, push_stop, pull)
}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"result": OPS[asked["op"]](asked)}
        except Exception as error:  # the other end says what went wrong
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
