"""What a thief of one signed request can do with it: at a stranger's address, or read on the network."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from tests.support.caller import accepted
from tests.support.secured_broker import (
    INNER,
    SECRET,
    Account,
    Secured,
    refused,
    secured,
)
from tests.support.tls import write_files
from trio.testing import MockClock

from rocketrio_broker.access import fresh_proofs
from rocketrio_broker.access.fresh_proofs import PROOF_WINDOW
from rocketrio_protocol.bodies.access import UserInfo
from rocketrio_protocol.bodies.registration import RegisterBrokerBody, encode_register_body
from rocketrio_protocol.bodies.topics import TopicConfigSerializeWrapper
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access, admin
from rocketrio_protocol.commands.cluster import RegisterBrokerRequestHeader
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import NotAuthenticatedError, refusal_class
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.proof import PROOF
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.signature import ACCESS_KEY, SIGNATURE, Signer

STRANGER = "10.0.0.66:10911"
NEW_USER = UserInfo(password="marker-thief", user_type="Super").to_json()
CREATE = access.CreateUserRequestHeader("thief")


@attrs.define
class Stranger:
    """A host that answers each request as a broker that does not know it, and keeps what it got."""

    got: list[RemotingCommand] = attrs.Factory(list)

    def answer(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self.got.append(request)
        return request.response(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    @property
    def signed(self) -> dict[int, dict[str, str]]:
        """The fields of the signed requests by their codes."""
        return {
            request.code: request.wire_fields()
            for request in self.got
            if ACCESS_KEY in request.wire_fields()
        }


@asynccontextmanager
async def stranger(here: Secured, broker_name: str, broker_id: int) -> AsyncGenerator[Stranger]:
    """A stranger that registers at the open name server as a broker."""
    one = Stranger()
    listener = await here.cluster.listen_on("10.0.0.66")(STRANGER)
    async with trio.open_nursery() as nursery:
        await nursery.start(
            lambda task_status: serve_remoting(
                [listener], {}, default=one.answer, task_status=task_status
            )
        )
        body = encode_register_body(RegisterBrokerBody(TopicConfigSerializeWrapper()))
        header = RegisterBrokerRequestHeader(broker_name, STRANGER, "lab", STRANGER, broker_id)
        async with here.client(addr=here.cluster.name_server.addr) as client:
            accepted(await client.ask(header, body))
            yield one
        nursery.cancel_scope.cancel()


def stolen(fields: Mapping[str, str], code: int, body: bytes = b"") -> RemotingCommand:
    """A request with these fields under another code."""
    return RemotingCommand(code, ext_fields=dict(fields), body=body)


REPLAYED = [
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.HAND_OVER,
    RequestCode.GET_ALL_USERS,
    RequestCode.GET_SEALED_USERS,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_CREATE_USER,
    RequestCode.GET_EVENTS,
]


@pytest.mark.slow
async def test_listed_peer_is_asked_without_a_signature_and_gets_none_that_is_good_elsewhere(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with secured(tmp_path, slaves=1, role="sync-master") as here, here.client() as thief:
        async with stranger(here, "broker-a", 7) as one:
            await trio.sleep(60)
            await here.cluster.kill_master()
            await here.cluster.restart_master()
            await trio.sleep(60)
        questions = {
            RequestCode.GET_IDENTITY,
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.GET_BROKER_HA_STATUS,
        }
        asked = {request.code for request in one.got}
        assert {RequestCode.GET_IDENTITY, RequestCode.GET_BROKER_CONFIG} <= asked
        # Before it serves, a master copies the tables of listed slaves: no slave gives them without an account.
        assert set(one.signed) == asked - questions > set()
        for code, fields in one.signed.items():
            assert "was made for" in refused(await thief.ask(stolen(fields, code)))
            for replayed in {*REPLAYED} - {code}:
                assert (
                    refused(await thief.ask(stolen(fields, replayed))) == "check signature failed."
                )
                thief.pool.drop(thief.addr)


@pytest.mark.parametrize("code", REPLAYED)
async def test_request_that_a_stranger_got_from_an_operator_is_no_request_of_another_code(
    tmp_path: Path, autojump_clock: MockClock, code: RequestCode
) -> None:
    async with secured(tmp_path) as here, here.operator() as operator, here.client() as thief:
        async with stranger(here, "broker-evil", 0) as one:
            await operator.ask(admin.GetBrokerRuntimeInfoRequestHeader(), addr=STRANGER)
        fields = one.signed[RequestCode.GET_BROKER_RUNTIME_INFO]
        renamed = {("0z" if name == PROOF else name): value for name, value in fields.items()}
        first, rest = fields[PROOF][:10], fields[PROOF][10:]
        split = {"0a": first, "0b": rest, **{k: v for k, v in fields.items() if k != PROOF}}
        empty = {"0": "", **renamed}
        for variant in (fields, renamed, split, empty):
            assert refused(await thief.ask(stolen(variant, code))) == "check signature failed."
        users = here.broker.state.access
        assert users is not None
        assert set(users.table.users) == {INNER.access_key}


async def test_change_that_a_stranger_got_is_not_accepted_by_the_real_broker(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with secured(tmp_path) as here, here.operator() as operator, here.client() as thief:
        async with stranger(here, "broker-evil", 0) as one:
            await operator.ask(CREATE, NEW_USER, addr=STRANGER)
            await operator.ask(admin.GetBrokerRuntimeInfoRequestHeader(), addr=STRANGER)
        request, question = one.got
        assert "was made for" in refused(
            await thief.ask(stolen(question.wire_fields(), question.code))
        )
        remark = refused(await thief.ask(stolen(request.wire_fields(), request.code, NEW_USER)))
        assert "was made for 10.0.0.66:10911" in remark
        assert here.broker.address in remark
        assert refusal_class(ResponseCode.NO_PERMISSION, remark) is NotAuthenticatedError


@attrs.define
class Listener:
    """A thief on the network, who reads requests of the inner account."""

    here: Secured
    thief: Account
    credentials: Credentials = INNER

    def signed(
        self, header: RequestHeader, body: bytes = b"", *, late: float = 0.0
    ) -> RemotingCommand:
        """A request as the account's client makes it, with a clock that is late."""
        clock = self.here.cluster.wall_clock
        signer = Signer(self.credentials, now_ms=lambda: clock.now_ms() - round(late * 1000))
        receivers = [self.here.broker.address]
        fields = signer.proved(header.code, header.to_ext_fields(), body, receivers=receivers)
        return stolen(fields, header.code, body)

    async def send(self, request: RemotingCommand) -> RemotingCommand:
        """Send a request that was read."""
        return await self.thief.ask(stolen(request.ext_fields, request.code, bytes(request.body)))


@asynccontextmanager
async def listening(folder: Path, **settings: object) -> AsyncGenerator[Listener]:
    async with secured(folder, **settings) as here, here.client() as thief:
        yield Listener(here, thief)


@pytest.mark.parametrize(
    "receiver", ["", "nowhere", "10.0.0.10:x", "[::1:2", "a" * 5000 + ":1", "10.0.0.10:10912"]
)
async def test_receiver_that_is_no_address_of_the_broker_is_refused(
    tmp_path: Path, receiver: str
) -> None:
    async with listening(tmp_path) as one:
        clock = one.here.cluster.wall_clock
        fields = Signer(INNER, now_ms=clock.now_ms).proved(
            CREATE.code, CREATE.to_ext_fields(), NEW_USER, receivers=[receiver]
        )
        remark = refused(await one.send(stolen(fields, CREATE.code, NEW_USER)))
        assert "was made for" in remark
        assert len(remark) < 1000


@pytest.mark.parametrize(
    "receiver", ["[::ffff:10.0.0.10]:10911", "other:1,10.0.0.10:10911", "10.0.0.10:10911"]
)
async def test_one_address_of_the_broker_in_any_spelling_suffices(
    tmp_path: Path, receiver: str
) -> None:
    async with listening(tmp_path) as one:
        clock = one.here.cluster.wall_clock
        fields = Signer(INNER, now_ms=clock.now_ms).proved(
            CREATE.code, CREATE.to_ext_fields(), NEW_USER, receivers=receiver.split(",")
        )
        accepted(await one.send(stolen(fields, CREATE.code, NEW_USER)))


async def test_change_is_accepted_once(tmp_path: Path) -> None:
    async with listening(tmp_path) as one:
        create, delete = (
            one.signed(CREATE, NEW_USER),
            one.signed(access.DeleteUserRequestHeader("thief")),
        )
        accepted(await one.send(create))
        accepted(await one.send(delete))
        assert "received before" in refused(await one.send(create))
        assert "received before" in refused(await one.send(delete))
        accepted(await one.send(one.signed(CREATE, NEW_USER)))


@pytest.mark.slow
async def test_change_is_not_accepted_later(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with listening(tmp_path) as one:
        early, late = one.signed(CREATE, NEW_USER), one.signed(CREATE, NEW_USER)
        await trio.sleep(PROOF_WINDOW - 1)
        accepted(await one.send(early))
        await trio.sleep(2)
        assert "clock is 301 s behind" in refused(await one.send(late))


@pytest.mark.parametrize(("late", "text"), [(310, "310 s behind"), (-310, "310 s ahead of")])
async def test_clock_that_is_wrong_is_named_with_its_difference(
    tmp_path: Path, autojump_clock: MockClock, late: float, text: str
) -> None:
    async with listening(tmp_path) as one:
        remark = refused(await one.send(one.signed(CREATE, NEW_USER, late=late)))
        assert text in remark
        assert "300 s are permitted" in remark
        # Nothing else depends on a clock.
        accepted(await one.send(one.signed(admin.GetBrokerRuntimeInfoRequestHeader(), late=late)))


async def test_change_from_before_a_start_is_not_accepted_after_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with listening(tmp_path) as one:
        create = one.signed(CREATE, NEW_USER)
        accepted(await one.send(create))
        accepted(await one.send(one.signed(access.DeleteUserRequestHeader("thief"))))
        await trio.sleep(5)
        await one.here.cluster.master.stop()
        await one.here.cluster.restart_master()
        assert "before this server started" in refused(await one.send(create))
        accepted(await one.send(one.signed(CREATE, NEW_USER)))


@pytest.mark.parametrize(
    "change",
    [
        lambda request: request.ext_fields.update(username="other"),
        lambda request: request.ext_fields.update(more="x"),
        lambda request: request.ext_fields.update(
            {PROOF: request.ext_fields[PROOF] + ",10.0.0.1:1"}
        ),
        lambda request: setattr(request, "body", UserInfo(password="marker-2").to_json()),
    ],
    ids=["field", "further field", "receiver", "body"],
)
async def test_change_that_is_altered_is_refused(tmp_path: Path, change: object) -> None:
    async with listening(tmp_path) as one:
        request = one.signed(CREATE, NEW_USER)
        change(request)  # type: ignore[operator]
        assert refused(await one.send(request)) == "check signature failed."


async def test_borders_between_fields_are_part_of_the_proof(tmp_path: Path) -> None:
    async with listening(tmp_path) as one:
        request = one.signed(access.DeleteAclRequestHeader("User:ab", "c"))
        fields = request.ext_fields
        # What Apache signs is the same: the values one after the other in the order of their names.
        fields["policyType"], fields["subject"] = "cUser:", "ab"
        assert refused(await one.send(request)) == "check signature failed."


async def test_apaches_signature_alone_does_not_suffice_for_what_concerns_rights_or_secrets(
    tmp_path: Path,
) -> None:
    ours = 71_001, 71_002, 71_011, 71_012, 71_013, 71_021, 71_022, 71_032
    async with listening(tmp_path) as one:
        fields = Signer(INNER).signed({}, b"")
        for code in (*range(50, 54), *range(3001, 3011), *ours):
            remark = refused(await one.send(stolen(fields, code)))
            assert "needs a proof" in remark, code
            assert "acl_plain_signatures_from" in remark, code
            one.thief.pool.drop(one.thief.addr)  # A connection has a limited number of refusals.


async def test_hosts_that_an_operator_names_need_no_proof(tmp_path: Path) -> None:
    fields = Signer(INNER).signed({"username": "thief"}, NEW_USER)
    request = stolen(fields, RequestCode.AUTH_CREATE_USER, NEW_USER)
    for hosts in ("10.0.0.99; 10.0.1.*", "10.0.0.99;10.0.0.*"):
        async with listening(tmp_path, acl_plain_signatures_from=hosts) as one:
            if hosts.endswith("10.0.0.*"):
                accepted(await one.send(request))
            else:
                refused(await one.send(request))


@pytest.mark.parametrize("has_certificate", [True, False])
async def test_client_certificate_replaces_the_proof(
    tmp_path: Path, autojump_clock: MockClock, has_certificate: bool
) -> None:
    files = write_files(tmp_path)
    settings = {
        "tls_certificate_file": files.certificate,
        "tls_key_file": files.key,
        "peer_tls_authority_file": files.authority,
        "tls_client_authority_file": files.authority,
        "tls_client_auth": "optional",
    }
    context = ssl.create_default_context(cafile=files.authority)
    context.check_hostname = False
    if has_certificate:
        context.load_cert_chain(files.certificate, files.key)
    fields = Signer(INNER).signed({"username": "thief"}, NEW_USER)
    request = stolen(fields, RequestCode.AUTH_CREATE_USER, NEW_USER)
    async with secured(tmp_path, tls=context, **settings) as here, here.client() as client:
        answer = await client.ask(request)
        if has_certificate:
            accepted(answer)
        else:
            assert "needs a proof" in refused(answer)


@pytest.mark.slow
async def test_proofs_that_are_remembered_have_a_limit_in_bytes(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fresh_proofs.FreshProofs.__init__,
        "__kwdefaults__",
        {"own_addrs": (), "plain_from": (), "size_limit": 10 * fresh_proofs._ENTRY_SIZE},
    )
    async with listening(tmp_path) as one:
        for _ in range(10):
            accepted(await one.send(one.signed(access.ListUsersRequestHeader())))
        assert "10 requests that need a proof" in refused(
            await one.send(one.signed(access.ListUsersRequestHeader()))
        )
        await trio.sleep(3 * PROOF_WINDOW)
        accepted(await one.send(one.signed(access.ListUsersRequestHeader())))


async def test_request_that_another_account_has_signed_over_a_proof_counts_as_that_accounts(
    tmp_path: Path,
) -> None:
    """As Apache's proxy sends on what a rocketrio client has sent to it."""
    async with listening(tmp_path) as one:
        await one.here.add_user("producer1")
        user = attrs.evolve(one, credentials=Credentials("producer1", SECRET))
        fields = user.signed(admin.GetBrokerRuntimeInfoRequestHeader()).ext_fields
        own = {name: value for name, value in fields.items() if name not in (ACCESS_KEY, SIGNATURE)}
        forwarded = stolen(Signer(INNER).signed(own, b""), RequestCode.GET_BROKER_RUNTIME_INFO)
        accepted(await one.send(forwarded))
