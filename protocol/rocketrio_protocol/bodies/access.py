"""Bodies of the requests about users and their rights, 3001 to 3010.

    {"username":"u","password":"p","userType":"Normal","userStatus":"enable"}
    {"subject":"User:u","policies":[{"policyType":"Custom","entries":[
        {"resource":"Topic:t","actions":["Pub"],"sourceIps":[],"decision":"Allow"}]}]}

Invariant: a password appears in no text that Python makes of these objects.
Answers to: UserInfo, AclInfo.
"""

import msgspec

from rocketrio_protocol.bodies.fastjson import JsonBody


class UserInfo(JsonBody):
    """A user; None means that a change keeps what is there."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"<UserInfo {self.username} {self.user_type} {self.user_status}>"


class PolicyEntryInfo(msgspec.Struct, rename="camel"):
    """The decision about one resource, such as `Topic:orders`, `Group:pay*` or `*`."""

    resource: str | None = None
    actions: list[str] = []
    source_ips: list[str] = []
    decision: str | None = None


class PolicyInfo(msgspec.Struct, rename="camel"):
    """The entries of one type: matching `Custom` ones decide before all `Default` ones."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = []


class AclInfo(JsonBody):
    """The policies of one subject, `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] = msgspec.field(default_factory=list)
