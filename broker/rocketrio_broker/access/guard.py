"""Asks who sent a request, and whether that user may, before any processor sees it.

    white address      passes, for the requests that need no signature
    no user            username cannot be null.
    signature          check signature failed.                 the same for an unknown user and a wrong secret
    proof              check signature failed: ...             where Apache's does not suffice (fresh_proofs.py)
    status             User:U is disabled.
    rights             User:U has no permission to access Topic:T from 1.2.3.4, no matched policies.
                       ... the decision is deny.
    unreadable         parse authorization context error.

All of these are NO_PERMISSION (16). Ten refusals in a row close the connection.

Invariant: a refused request has not been executed, and its processor has not seen it.
Invariant: how long a refusal takes does not show whether the user exists.
Answers to: AuthenticationPipeline, AuthorizationPipeline; PlainAccessValidator for what is signed.
Unlike Java: unknown users and wrong secrets get the same text. `_UNIQUE_KEY_QUERY` of 12 may be signed or not, because
clients before 4.9.4 do not sign it.
"""

import hmac
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import trio

from rocketrio_broker.access.failures import FailureLog
from rocketrio_broker.access.fresh_proofs import FreshProofs
from rocketrio_broker.access.needs import (
    ADDRESS,
    ANYONE,
    PROOF,
    PUB,
    Facts,
    KnownBy,
    Need,
    topic_need,
)
from rocketrio_broker.clients.connected import ClientChannel, ClientChannelInfo
from rocketrio_broker.requests.declaration import Declaration, Handlers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_protocol.access.model import NAME_LENGTH_LIMIT, AccessDecision, AccessTable, User
from rocketrio_protocol.access.white_addresses import AddressPattern
from rocketrio_protocol.codes import RequestCode, ResponseCode, code_name
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.proof import Proof, is_proved, read_proof
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer, Processor, not_supported
from rocketrio_protocol.remoting.ports import split_addr
from rocketrio_protocol.signature import ACCESS_KEY, SIGNATURE, signature

logger = logging.getLogger("rocketrio_broker.access")

REFUSALS_LIMIT: Final = 10
"""Refusals in a row after which a connection is closed."""
CLOSE_LIMIT: Final = 1.0
"""Seconds that such a connection has to read its last answer."""

_UNSIGNED_FIELD: Final = "_UNIQUE_KEY_QUERY"
_QUERY_MESSAGE: Final = int(RequestCode.QUERY_MESSAGE)
_ALLOWED: Final = AccessDecision.ALLOWED
_DUMMY: Final = b"not the secret of any user"


class DeniedError(RefusedError):
    """Access control refuses a request."""

    def __init__(self, remark: str, *, user: str | None) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.user = user


class Guard:
    """Guards the processors of one server."""

    def __init__(
        self,
        table: Callable[[], AccessTable],
        facts: Facts,
        proofs: FreshProofs,
    ) -> None:
        """`table` returns the current users."""
        self._table = table
        self._facts = facts
        self._proofs = proofs
        self._failures = FailureLog()
        self._refusals: WeakKeyDictionary[Channel, int] = WeakKeyDictionary()
        self._has_refusals = False
        """Whether some connection has refusals: the length of a weak dictionary costs each request a call."""

    def over(self, processors: Mapping[int, Processor], handlers: Handlers) -> Processor:
        """Return the processor of all codes, which passes permitted requests to the table."""
        declarations = {code: handler.declared for code, handler in handlers.items()}

        def process(
            channel: Channel, request: RemotingCommand
        ) -> Answer | Coroutine[Any, Any, Answer]:
            declared = declarations.get(request.code)
            try:
                # Before the processor sees it, and with the user: a refused request has not been executed.
                request.user = self._check(channel, request, declared)
            except DeniedError as refusal:
                return self._refused(channel, request, refusal)
            if self._has_refusals:
                self._refusals.pop(channel, None)
                self._has_refusals = bool(self._refusals)
            if declared is None:
                # Nothing says what the request needs, so not even a Super user has it executed.
                return not_supported(channel, request)
            return processors.get(request.code, not_supported)(channel, request)

        return process

    def _check(
        self, channel: Channel, request: RemotingCommand, declared: Declaration | None
    ) -> str | None:
        """Return the name of the user that sent a permitted request; None if its address suffices.

        Raises AccessDeniedError, or RefusedError for a message that is not there.
        """
        known_by = KnownBy.SIGNATURE if declared is None else declared.known_by
        if known_by is ANYONE:
            return None
        table = self._table()
        white_suffices = known_by is ADDRESS
        user, proof = self._authenticated(table, channel, request, white_suffices)
        if user is None:
            return None
        if not user.is_super and not (
            white_suffices and user.white and _is_from(user.white, channel)
        ):
            self._authorize(table, user, channel, request, declared)
        is_needed = known_by is PROOF
        if is_needed or proof is not None:
            problem = self._proofs.problem(channel, request.code, proof, is_needed=is_needed)
            if problem is not None:
                raise DeniedError(problem, user=user.name)
        return user.name

    def check_again(
        self, channel: ClientChannel, user_name: str | None, needs: Sequence[Need]
    ) -> None:
        """Raise AccessDeniedError if the user of a request that was permitted earlier has lost one of these rights."""
        table = self._table()
        if user_name is None:
            if not _is_from(table.white, channel):
                raise DeniedError("username cannot be null.", user=None)
            return
        user = table.users.get(user_name)
        if user is None:
            raise DeniedError("check signature failed.", user=user_name)
        _refuse_disabled(user)
        if not (user.is_super or _is_from(user.white, channel)):
            self._decide(table, user, channel, needs)

    def may_publish(self, client: ClientChannelInfo, topic: str) -> bool:
        """Return whether the user of a client's last heartbeat may send to a topic."""
        try:
            self.check_again(client.channel, client.user, [topic_need(topic, PUB)])
        except DeniedError:
            return False
        return True

    # --------------------------------------------------------------------------------- authentication

    def _authenticated(
        self, table: AccessTable, channel: Channel, request: RemotingCommand, white_suffices: bool
    ) -> tuple[User | None, Proof | None]:
        """Return the user who signed a request, None if its address needs no user, and the proof, if there is one."""
        if white_suffices and table.white and _is_from(table.white, channel):
            return None, None
        fields = request.wire_fields()
        name = fields.get(ACCESS_KEY)
        if not name:
            raise DeniedError("username cannot be null.", user=None)
        user = table.users.get(name)
        if user is not None and white_suffices and user.white and _is_from(user.white, channel):
            _refuse_disabled(user)
            return user, None
        # Computed also without a user, for the same reason; and one text for both cases.
        if not _is_signed(() if user is None else user.secrets, fields, request) or user is None:
            raise DeniedError("check signature failed.", user=name)
        proof = None
        if is_proved(name, fields, request.body):
            proof = read_proof(fields)
            if proof is None or not _is_made_by(user, proof, fields, request):
                raise DeniedError("check signature failed.", user=name)
        if not user.is_enabled:
            _refuse_disabled(user)
        return user, proof

    # ---------------------------------------------------------------------------------- authorization

    def _authorize(
        self,
        table: AccessTable,
        user: User,
        channel: Channel,
        request: RemotingCommand,
        declared: Declaration | None,
    ) -> None:
        if declared is None:
            raise DeniedError(
                f"User:{user.name} has no permission to access request code {request.code} "
                f"from {_host(channel)}, no matched policies.",
                user=user.name,
            )
        try:
            needs = declared.rule(request, self._facts)
        except RemoteProtocolError as error:
            raise DeniedError("parse authorization context error.", user=user.name) from error
        self._decide(table, user, channel, needs)

    def _decide(
        self, table: AccessTable, user: User, channel: ClientChannel, needs: Sequence[Need]
    ) -> None:
        host = _host(channel) if table.is_bound_to_addresses(user) else ""
        for kind, name, actions in needs:
            if not host and table.has_allowed(user, kind, name, actions):
                continue
            verdict = table.verdict(user, kind, name, actions, host)
            if verdict is not _ALLOWED:
                raise DeniedError(
                    f"User:{user.name} has no permission to access "
                    f"{kind}:{name[:NAME_LENGTH_LIMIT]} from {_host(channel)}, {verdict.value}.",
                    user=user.name,
                )

    # --------------------------------------------------------------------------------------- refusals

    def _refused(
        self, channel: Channel, request: RemotingCommand, refusal: DeniedError
    ) -> Answer | Coroutine[Any, Any, Answer]:
        self._failures.note(
            refusal.user, _host(channel), code_name(request.code, RequestCode), refusal.remark
        )
        count = self._refusals.get(channel, 0) + 1
        self._refusals[channel] = count
        self._has_refusals = True
        if count > REFUSALS_LIMIT:
            return None  # The connection is being closed.
        answer = request.response(code=refusal.code, remark=refusal.remark)
        if count < REFUSALS_LIMIT:
            return answer
        return _answer_and_close(channel, answer, is_oneway=request.is_oneway)


async def _answer_and_close(
    channel: Channel, answer: RemotingCommand, *, is_oneway: bool
) -> Answer:
    if not is_oneway:
        channel.reply(answer)
    with trio.move_on_after(CLOSE_LIMIT):
        await channel.drain()
    channel.close(f"access control refused {REFUSALS_LIMIT} requests in a row")
    return None


def _host(channel: ClientChannel) -> str:
    return split_addr(channel.remote_addr)[0]


def _is_from(patterns: tuple[AddressPattern, ...], channel: ClientChannel) -> bool:
    if not patterns:
        return False
    host = _host(channel)
    return any(pattern.matches(host) for pattern in patterns)


def _refuse_disabled(user: User) -> None:
    if not user.is_enabled:
        raise DeniedError(f"User:{user.name} is disabled.", user=user.name)


def _is_made_by(
    user: User, proof: Proof, fields: Mapping[str, str], request: RemotingCommand
) -> bool:
    """Return whether a proof belongs to this request, and was made by this user."""
    return proof.user == user.name and any(
        proof.is_made_with(secret, request.code, fields, request.body) for secret in user.secrets
    )


def _is_signed(
    secrets: tuple[bytes, ...], fields: Mapping[str, str], request: RemotingCommand
) -> bool:
    """Return whether a request is signed with one of these secrets, in the same time if there is none."""
    given = fields.get(SIGNATURE, "").encode()
    is_signed = False
    # Two computations, whether the user exists or not, and however many secrets
    # it has: the time of a refusal shows nothing.
    for secret in (*secrets, _DUMMY, _DUMMY)[:2]:
        wanted = signature(secret, fields, request.body)
        is_signed = hmac.compare_digest(wanted.encode(), given) and secret is not _DUMMY
        if not is_signed and request.code == _QUERY_MESSAGE and _UNSIGNED_FIELD in fields:
            rest = {name: value for name, value in fields.items() if name != _UNSIGNED_FIELD}
            wanted = signature(secret, rest, request.body)
            is_signed = hmac.compare_digest(wanted.encode(), given) and secret is not _DUMMY
        if is_signed:
            break
    return is_signed
