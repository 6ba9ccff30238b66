"""Fixtures of tests of consumers."""

import pytest
from tests.client.consuming.offset_stores import new_store

from rocketrio import ClientInstance
from rocketrio.consuming.offset_store import RemoteBrokerOffsetStore


@pytest.fixture
async def store(client: ClientInstance) -> RemoteBrokerOffsetStore:
    return await new_store(client)
