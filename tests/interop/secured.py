"""Apache's clusters with access control: 4.9.7 by plain_acl.yml, 5.3.3 by users and policies.

The users of 5.3.3 are made by our administration, and the accounts of 4.9.7 stand in its file: an admin, and one for
each use with the least rights that docs/security.md names.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from rocketrio import Credentials, open_admin
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.support import wire

ADMIN: Final = Credentials("administrator", "admin-secret-1")
PRODUCER: Final = Credentials("producer1", "producer-secret-1")
CONSUMER: Final = Credentials("consumer1", "consumer-secret-1")
BOTH: Final = Credentials("ordinary1", "ordinary-secret-1")
"""Sends and reads, for what needs both: requests with replies, dead letters, Spark."""
TOPIC, OTHER, DENIED, GROUP = "orders", "invoices", "secrets", "billing"

PLAIN_ACL: Final = f"""\
accounts:
  - accessKey: {ADMIN.access_key}
    secretKey: {ADMIN.secret_key}
    admin: true
  - accessKey: {PRODUCER.access_key}
    secretKey: {PRODUCER.secret_key}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [{TOPIC}=PUB]
  - accessKey: {CONSUMER.access_key}
    secretKey: {CONSUMER.secret_key}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [{TOPIC}=SUB]
    groupPerms: [{GROUP}=SUB]
  - accessKey: {BOTH.access_key}
    secretKey: {BOTH.secret_key}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [{TOPIC}=PUB|SUB, {OTHER}=PUB|SUB, "%DLQ%{GROUP}=SUB"]
    groupPerms: [{GROUP}=SUB, TOOLS_CONSUMER=SUB]
"""

RIGHTS: Final = {
    PRODUCER: {f"Topic:{TOPIC}": ["Pub"], "Topic:RMQ_SYS_TRACE_TOPIC": ["Pub"]},
    CONSUMER: {f"Topic:{TOPIC}": ["Sub", "Get"], f"Group:{GROUP}": ["Sub", "Get"]},
    BOTH: {
        f"Topic:{TOPIC}": ["Pub", "Sub", "Get"],
        f"Topic:{OTHER}": ["Pub", "Sub", "Get"],
        f"Topic:%DLQ%{GROUP}": ["Sub", "Get"],
        f"Group:{GROUP}": ["Sub", "Get"],
        "Group:TOOLS_CONSUMER": ["Sub"],  # Dead letters are read under this name.
    },
}
"""What the users of 5.3.3 may do."""


def access_settings(version: str) -> dict[str, str]:
    """Return the settings of a broker of Apache's with access control."""
    if version < "5":
        return {"aclEnable": "true"}
    auth = "org.apache.rocketmq.auth"
    admin = f'"{ADMIN.access_key}"'
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{auth}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{auth}.authentication.provider.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": f'{{"username":{admin},"password":"{ADMIN.secret_key}"}}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret-1"}',
        "authorizationEnabled": "true",
        "authorizationProvider": f"{auth}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{auth}.authorization.provider.LocalAuthorizationMetadataProvider",
    }


@attrs.define
class SecuredBroker(ApacheBroker):
    """A master that wants to know who asks."""

    def start(self) -> None:
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        if self.version < "5":
            (self.home / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
        ApacheBroker.start(self)

    def wait_ready(self) -> None:
        self.running.wait_until(
            lambda: _refuses(self.address) and wire.is_registered(self.name_server, self.address),
            f"refusing strangers and listed by {self.name_server}",
        )


def _refuses(address: str) -> bool:
    try:
        return wire.ask(address, wire.GET_BROKER_RUNTIME_INFO).code in (1, 16)
    except OSError:
        return False


@attrs.frozen
class Secured:
    """What runs."""

    version: str
    name_server: str
    master: SecuredBroker


@contextmanager
def secured_apache(version: str, folder: Path) -> Iterator[Secured]:
    """Name server and master for the block, with users, and with the topics of this file."""
    with (
        ApacheNameServer(version, folder / "names") as names,
        SecuredBroker(
            version, folder / "master", names.address, settings=access_settings(version)
        ) as master,
    ):
        trio.run(_make_users_and_topics, version, names.address)
        yield Secured(version, names.address, master)


async def _make_users_and_topics(version: str, name_server: str) -> None:
    async with open_admin(name_servers=[name_server], credentials=ADMIN) as admin:
        for topic in (TOPIC, OTHER, DENIED):
            await admin.create_topic(topic, queues=2)
        await admin.create_group(GROUP)
        if version < "5":
            return
        access = admin.access()
        for user, rights in RIGHTS.items():
            await access.create_user(user.access_key, user.secret_key)
            for resource, actions in rights.items():
                await access.grant(user.access_key, [resource], actions)
