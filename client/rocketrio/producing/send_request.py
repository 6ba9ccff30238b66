"""Encodes a send request from bytes that all sends to a queue have in common.

    prefix | {"code":310,"extFields":{"a":group,"b":topic,...,"e":queue,   | body
           |    "f":...,"i":properties},"flag":0,...,"opaque":n,...}       |      the first line is made once per queue

A header object, a map of its fields and their JSON would make a send three times as expensive.

Invariant: the bytes mean the same as `Outgoing.header` of the same message, from which other encodings are made.
Answers to: SendMessageRequestHeaderV2 and RemotingCommand.encode, only for sends.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

import attrs
import msgspec

from rocketrio.limits import DEFAULT_TOPIC_QUEUE_NUMS
from rocketrio.producing.outgoing import Outgoing
from rocketrio_protocol.codes import PROTOCOL_VERSION, LanguageCode, RequestCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.send import AUTO_CREATE_TOPIC_KEY
from rocketrio_protocol.frame import FRAME_SIZE_LIMIT
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.signature import Signer

_HEAD_CACHE_SIZE: Final = 4096  # queues of all topics sent to; a head has about 100 bytes
_KEPT_NAME_SIZE: Final = 255  # characters of a broker's name, which a name server decides
_SIZE_LEFT_TO_HEADER: Final = 256 * 1024
"""Bytes that the header of a send never exceeds; a frame whose body leaves less room is measured exactly."""

_PREFIX: Final = Struct(">iI")
_LENGTH_SIZE: Final = 4
_SINGLE: Final = int(RequestCode.SEND_MESSAGE_V2)
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_DEFAULTS: Final = f"{AUTO_CREATE_TOPIC_KEY}{DEFAULT_TOPIC_QUEUE_NUMS}"
_AFTER_PROPERTIES: Final = f'}},"flag":0,"language":"{LanguageCode.PYTHON.name}","opaque":'
_AFTER_OPAQUE: Final = (
    f',"serializeTypeCurrentRPC":"{SerializeType.JSON.name}","version":{PROTOCOL_VERSION}}}'
)

_json: Final = msgspec.json.Encoder().encode


@attrs.define(eq=False)
class SendRequest:
    """One request for one queue."""

    outgoing: Outgoing
    queue: MessageQueue
    group: str
    born_time_ms: int

    @property
    def topic(self) -> str:
        """The topic that is sent to."""
        return self.outgoing.topic

    @property
    def code(self) -> int:
        """The request code: SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE."""
        return _BATCH if self.outgoing.is_batch else _SINGLE

    def json_frame(self, opaque: int, signer: Signer | None = None) -> bytes:
        """Return the whole frame with a JSON header, signed if there is a signer.

        Raises LocalProtocolError if peers would refuse it.
        """
        outgoing, queue = self.outgoing, self.queue
        body = outgoing.body
        # What is unusual goes the general way: here only the bytes of the usual request have to be equal to those.
        is_large = len(body) > FRAME_SIZE_LIMIT - _SIZE_LEFT_TO_HEADER
        if is_large or len(queue.broker_name) > _KEPT_NAME_SIZE:
            return self._encoded(opaque, signer)
        code, batch = (_BATCH, '","m":"true"') if outgoing.is_batch else (_SINGLE, '"')
        signed = "" if signer is None else f",{signer.json_fields(self._values(), body)}"
        try:
            header = (
                f"{_head(code, self.group, outgoing.topic, queue.broker_name, queue.queue_id)}"
                f'{outgoing.sys_flag}","g":"{self.born_time_ms}","h":"{outgoing.flag}{batch}'
                f',"i":{_json(outgoing.properties).decode()}{signed}{_AFTER_PROPERTIES}{opaque}{_AFTER_OPAQUE}'
            ).encode()
        except UnicodeEncodeError:
            return self._encoded(opaque, signer)
        size = len(header)
        return b"".join((_PREFIX.pack(_LENGTH_SIZE + size + len(body), size), header, body))

    def command(self) -> RemotingCommand:
        """Return the same request for a connection with another encoding."""
        header = self.outgoing.header(self.queue, group=self.group, born_time_ms=self.born_time_ms)
        return RemotingCommand.request(header, self.outgoing.body)

    def _values(self) -> str:
        """Return the values of the fields a to n in the order of their names, which is how they are signed."""
        outgoing, queue = self.outgoing, self.queue
        return (
            f"{self.group}{outgoing.topic}{_DEFAULTS}{queue.queue_id}{outgoing.sys_flag}{self.born_time_ms}"
            f"{outgoing.flag}{outgoing.properties}{'true' if outgoing.is_batch else ''}{queue.broker_name}"
        )

    def _encoded(self, opaque: int, signer: Signer | None) -> bytes:
        command = self.command()
        if signer is not None:
            command.ext_fields = signer.signed(command.ext_fields, command.body)
        command.opaque = opaque
        return command.encode()


@lru_cache(_HEAD_CACHE_SIZE)
def _head(code: int, group: str, topic: str, broker_name: str, queue_id: int) -> str:
    """Return the header up to its sysFlag."""
    return (
        f'{{"code":{code},"extFields":{{"a":{_text(group)},"b":{_text(topic)}'
        f',"c":"{AUTO_CREATE_TOPIC_KEY}","d":"{DEFAULT_TOPIC_QUEUE_NUMS}","e":"{queue_id}"'
        f',"n":{_text(broker_name)},"f":"'
    )


def _text(text: str) -> str:
    return _json(text).decode()
