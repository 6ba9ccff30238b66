"""Apache's Go and C++ clients with an account, on our name server and broker with access control.

The stories are those of `test_other_clients_on_our_broker.py`, played again with an account of ordinary rights. The
name server is closed too: Go's producer and push consumer sign what they ask it, its administration does not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketrio import Credentials, MessageQueue, open_client
from tests.interop.line_client import ClientError
from tests.interop.other_clients import QUICK_CHECKS, OtherClient, other_client, topic  # noqa: F401 - a fixture
from tests.interop.secured_ours import (
    DENIED,
    INNER,
    ORDINARY,
    SecuredServers,
    secured_servers,
)
from tests.interop.test_other_clients_on_our_broker import (  # noqa: F401 - played here again
    test_its_batch_is_stored_side_by_side,
    test_its_delayed_message_comes_later,
    test_its_order_is_kept,
    test_its_transactions_are_decided,
    test_message_of_the_other_client_is_stored_whole,
    test_message_that_the_other_client_hands_back_comes_again,
    test_other_client_handles_a_queue_in_order,
    test_other_client_pulls_without_a_group_of_members,
    test_other_client_receives_by_sql,
    test_other_client_receives_by_tags,
    test_other_client_receives_what_ours_sends,
    test_other_client_shares_the_queues_with_ours,
    test_rocketrio_client_continues_where_it_stopped,
)

pytestmark = pytest.mark.interop

LANGUAGES = ("go", "cpp")
STRANGERS = {
    "wrong secret": (Credentials(ORDINARY.access_key, "wrong-secret-1"), "check signature failed"),
    "unknown": (Credentials("nobody-knows", "wrong-secret-1"), "check signature failed"),
    "none": (None, "username cannot be null"),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServers]:
    with secured_servers(tmp_path_factory.mktemp("secured-others"), *QUICK_CHECKS) as servers:
        yield servers


@pytest.fixture(scope="module", params=LANGUAGES)
def other(
    request: pytest.FixtureRequest,
    cluster: SecuredServers,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OtherClient]:
    home = tmp_path_factory.mktemp(f"secured-{request.param}")
    with other_client(request.param, cluster.name_server.address, home, ORDINARY) as running:
        yield running


@pytest.fixture
async def client(cluster: SecuredServers) -> Any:
    async with open_client(
        name_servers=[cluster.name_server.address], credentials=ORDINARY
    ) as running:
        yield running


async def test_denied_topic_gets_nothing_from_the_other_client(
    other: OtherClient, cluster: SecuredServers
) -> None:
    # Go's error has the broker's text; C++ says of every failed send that the topic has no route.
    with pytest.raises(ClientError, match=r"has no permission|No route info"):
        await other.acall("send", topic=DENIED, body="x")
    assert cluster.master.running.has_said(f"has no permission to access Topic:{DENIED}")
    names = [cluster.name_server.address]
    async with open_client(name_servers=names, credentials=INNER) as operator:
        queue = MessageQueue(DENIED, "broker-a", 0)
        assert await operator.api.max_offset(cluster.master.address, queue) == 0


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("stranger", STRANGERS)
def test_stranger_is_refused_and_named_in_the_log(
    language: str, stranger: str, cluster: SecuredServers, tmp_path: Path
) -> None:
    account, reason = STRANGERS[stranger]
    with (
        other_client(language, cluster.name_server.address, tmp_path, account) as other,
        pytest.raises(ClientError),
    ):
        other.call("send", topic="open-to-strangers", body="x")
    running = cluster.name_server.running
    running.wait_until(lambda: running.has_said(reason), reason)
    assert "wrong-secret-1" not in running.log.read_text()
