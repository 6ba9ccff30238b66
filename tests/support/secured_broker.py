"""A broker in memory with access control, and clients of it with an account or without."""

import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
from tests.support.caller import accepted
from tests.support.private_files import account_file, private_file

from rocketrio_broker.access.control import AccessControl, InnerCredentials, access_control
from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketrio_protocol.codes import ResponseCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.tls import tls_dial
from rocketrio_protocol.signature import Signer

INNER = Credentials("inner-account", "marker-inner-secret")
SECRET = "marker-user-secret"
REFUSED = ResponseCode.NO_PERMISSION


def inner_file(folder: Path, credentials: Credentials = INNER) -> Path:
    """Write the file of an inner account."""
    return account_file(folder / "inner.yml", credentials)


def name_server_access(folder: Path, users: str) -> AccessControl:
    """Return the access control of a name server: the inner account, and users of a file with this text."""
    disk = InlineDisk()
    return access_control(
        acl_paths=[private_file(folder / "users.json", users)],
        inner=InnerCredentials(inner_file(folder), disk=disk),
        white_addresses=False,
        config_directory=None,
        disk=disk,
    )


@attrs.define
class Account:
    """A client of one broker."""

    pool: ChannelPool
    addr: str

    async def ask(
        self, header: RequestHeader | RemotingCommand, body: bytes = b"", addr: str = ""
    ) -> RemotingCommand:
        return await self.pool.call(addr or self.addr, header, body)

    async def send(self, topic: str, body: bytes = b"hello") -> RemotingCommand:
        return await self.ask(message(topic), body)


@attrs.define
class Secured:
    """A cluster whose brokers have access control."""

    cluster: EmbeddedCluster
    tls: ssl.SSLContext | None = None
    """What clients check servers with; None without TLS."""

    @property
    def broker(self) -> Broker:
        return self.cluster.master.broker

    def options(self, account: Any, **options: Any) -> dict[str, Any]:
        """Return the arguments with which the client's openers connect as an account, or with a provider of one."""
        return {
            "name_servers": self.cluster.name_servers,
            "dial": self.cluster.dial,
            "wall_clock": self.cluster.wall_clock,
            "credentials": account,
            **options,
        }

    @asynccontextmanager
    async def client(
        self,
        user: str | None = None,
        secret: str = SECRET,
        *,
        serialize_type: SerializeType = SerializeType.JSON,
        addr: str = "",
        processors: Mapping[int, Processor] | None = None,
    ) -> AsyncGenerator[Account]:
        """Connect as a user, or without credentials."""
        signer = None
        if user is not None:
            now_ms = self.cluster.wall_clock.now_ms
            signer = Signer(Credentials(user, secret), now_ms=now_ms)
        context, dial = self.tls, self.cluster.dial
        if context is not None:
            dial = tls_dial(dial, lambda: context)
        async with open_channel_pool(
            dial, signer=signer, serialize_type=serialize_type, processors=processors
        ) as pool:
            yield Account(pool, addr or self.broker.address)

    @asynccontextmanager
    async def operator(self) -> AsyncGenerator[Account]:
        """Connect with the inner account."""
        async with self.client(INNER.access_key, INNER.secret_key) as account:
            yield account

    async def add_user(
        self, name: str, grants: Mapping[str, Sequence[str]] | None = None, **info: str
    ) -> None:
        """Create a user with rights such as `{"Topic:t": ["Pub"]}`."""
        async with self.operator() as operator:
            body = UserInfo(password=SECRET, **info).to_json()
            accepted(await operator.ask(access.CreateUserRequestHeader(name), body))
            if grants:
                await self.grant(name, grants)

    async def grant(
        self, name: str, grants: Mapping[str, Sequence[str]], decision: str = "Allow"
    ) -> None:
        """Add rights to a user."""
        async with self.operator() as operator:
            header = access.CreateAclRequestHeader(f"User:{name}")
            accepted(await operator.ask(header, acl(name, grants, decision).to_json()))

    async def revoke(self, name: str, resource: str | None = None) -> None:
        """Remove a user's rights on a resource, or all of them."""
        async with self.operator() as operator:
            accepted(
                await operator.ask(access.DeleteAclRequestHeader(f"User:{name}", resource=resource))
            )


@asynccontextmanager
async def secured(
    folder: Path, *, tls: ssl.SSLContext | None = None, **settings: Any
) -> AsyncGenerator[Secured]:
    """A cluster in memory; the inner account is the only user. With `tls` clients use it."""
    async with EmbeddedCluster(
        cluster_name="lab",
        **{
            "acl_enable": True,
            "inner_credentials_file": inner_file(folder),
            # Without it slaves get no users.
            "ha_secret_file": private_file(
                folder / "link-secret", "marker-9vW3kPz7Qm1sXc5bTd8fYh2jLr4nGa6e"
            ),
            **settings,
        },
    ) as cluster:
        yield Secured(cluster, tls)


def acl(name: str, grants: Mapping[str, Sequence[str]], decision: str = "Allow") -> AclInfo:
    """Return policies as a request has them."""
    entries = [
        PolicyEntryInfo(resource, list(actions), [], decision)
        for resource, actions in grants.items()
    ]
    return AclInfo(f"User:{name}", [PolicyInfo("Custom", entries)])


def message(topic: str) -> SendMessageRequestHeaderV2:
    """Return the header of a send."""
    return SendMessageRequestHeaderV2("PG", topic, "TBW102", 4, 0, 0, 1000, 0, properties="")


def refused(answer: RemotingCommand) -> str:
    """Return the remark of an answer, which must be a refusal."""
    assert answer.code == REFUSED, (answer.code, answer.remark)
    assert answer.remark is not None
    return answer.remark
