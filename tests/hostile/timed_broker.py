"""The command `rocketrio-broker` with one more request, for `test_crowds.py`: what CPU time its loop has spent."""

import time

from rocketrio_broker import broker, cli
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.remoting.channel import Channel

CPU_TIME = 4711


def tell_cpu_time(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    return request.response(body=repr(time.thread_time()).encode())


if __name__ == "__main__":
    real = broker.processor_table
    broker.processor_table = lambda *parts: {**real(*parts), CPU_TIME: tell_cpu_time}
    cli.main()
