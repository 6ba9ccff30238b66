"""Administration of a cluster: `Admin` is the sum of its subjects, each of which has a file.

    topics, groups, offsets, resets, messages      what producers and consumers use
    clients, lag                                   who is connected, and how far behind groups are
    brokers, drain, name_servers, access           the servers, and who may do what
    diagnosis/admin, apply                         what is wrong, and a cluster as files declare it

A subject that asks questions of another one inherits from it. Values stand beside the subject that returns them.

Invariant: a value that could not be read is None or an error, never zero.
Invariant: a change is complete when every broker concerned has confirmed it; an error names the first that did not.
Answers to: DefaultMQAdminExt.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Unpack

from rocketrio.admin.access import AccessAdmin
from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.apply import DeclaredAdmin
from rocketrio.admin.brokers import BrokerAdmin
from rocketrio.admin.clients import ClientAdmin
from rocketrio.admin.diagnosis.admin import DiagnosisAdmin
from rocketrio.admin.drain import DrainAdmin
from rocketrio.admin.groups import GroupAdmin
from rocketrio.admin.lag import LagAdmin
from rocketrio.admin.messages import MessageAdmin
from rocketrio.admin.name_servers import NameServerAdmin
from rocketrio.admin.offsets import OffsetAdmin
from rocketrio.admin.resets import ResetAdmin
from rocketrio.admin.topics import TopicAdmin
from rocketrio.client import ClientInstance
from rocketrio.connect import ClientOptions, given_or_own


@asynccontextmanager
async def open_admin(
    *, client: ClientInstance | None = None, **client_options: Unpack[ClientOptions]
) -> AsyncGenerator["Admin"]:
    """Open an admin for the length of the block; it uses `client`, or opens one with the other arguments."""
    async with given_or_own(client, client_options, open_admin) as used:
        yield Admin(used, AdminCalls(used.api))


class Admin(
    DeclaredAdmin,
    DiagnosisAdmin,
    MessageAdmin,
    TopicAdmin,
    ResetAdmin,
    OffsetAdmin,
    GroupAdmin,
    ClientAdmin,
    DrainAdmin,
    LagAdmin,
    BrokerAdmin,
    NameServerAdmin,
):
    """The administration of a cluster; `open_admin` creates it.

    Every method raises NotReachableError without a name server.
    """

    # Among the bases a subject stands before those that it inherits from: Python insists.
    __slots__ = ()

    def access(
        self,
        *,
        cluster: str | None = None,
        broker_addr: str | None = None,
        plain_passwords: bool = False,
    ) -> AccessAdmin:
        """Return the users and rights of all brokers, of one cluster's or of one broker, see access.py.

        With `plain_passwords` passwords are also sent over connections without TLS to other machines: name servers say
        where brokers are, and an open one lists any host.
        """
        return AccessAdmin(self.client, self.calls, cluster, broker_addr, plain_passwords)
