"""The account of one client: the credentials that sign its requests, and where new ones come from.

A server's refusal may mean that the keys have changed. The provider is asked then, and the request is repeated once if
the provider has other credentials by now; otherwise the refusal is raised.

Invariant: one question to the provider at a time, however many requests were refused.
Invariant: no text contains a secret.
Answers to: AclClientRPCHook.
Unlike Java: credentials can change while the client runs.
"""

import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final, TypeAlias

import attrs
import trio

from rocketrio.cluster.variables import (
    ACCESS_KEY_VARIABLE,
    CREDENTIALS_FILE_VARIABLE,
    SECRET_KEY_VARIABLE,
    SECURITY_TOKEN_VARIABLE,
)
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.remoting.ports import SystemWallClock, WallClock
from rocketrio_protocol.remoting.tasks import every
from rocketrio_protocol.signature import Signer

CREDENTIALS_INTERVAL: Final = 300.0
"""Seconds between two questions to a provider of credentials."""
PROVIDER_TIMEOUT: Final = 10.0
"""Seconds that a provider may take."""
PROVIDER_PAUSE: Final = 1.0
"""Seconds after an answer of the provider during which refusals do not ask it again."""


Provider: TypeAlias = Callable[[], Credentials | Awaitable[Credentials]]
"""Returns the credentials to use from now on."""
GivenCredentials: TypeAlias = Credentials | Provider | None
"""What users pass; None means the environment."""

logger = logging.getLogger("rocketrio.client")


def file_provider(path: str) -> Provider:
    """Return a provider that reads a file each time, so that a key that is changed there is used."""
    return lambda: Credentials.from_file(path)


def given_credentials(
    given: GivenCredentials, environ: Mapping[str, str] | None = None
) -> Credentials | Provider | None:
    """Return the credentials or provider to use: the given one, else that of the environment, else None.

    Raises ConfigError for anything else, without its value.
    """
    if isinstance(given, Credentials) or callable(given):
        return given
    if given is not None:
        raise ConfigError(
            f"credentials= must be Credentials or a function that returns them, not {type(given).__name__}",
            remedy="Use credentials=Credentials(access_key, secret_key)",
        )
    environ = os.environ if environ is None else environ
    path = environ.get(CREDENTIALS_FILE_VARIABLE)
    access_key = environ.get(ACCESS_KEY_VARIABLE)
    secret_key = environ.get(SECRET_KEY_VARIABLE)
    if path:
        if access_key or secret_key:
            raise ConfigError(
                f"the environment sets both {CREDENTIALS_FILE_VARIABLE} and a key; set one of them"
            )
        return file_provider(path)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        missing = SECRET_KEY_VARIABLE if access_key else ACCESS_KEY_VARIABLE
        raise ConfigError(f"the environment sets only one of two keys; set {missing} too")
    return Credentials(access_key, secret_key, environ.get(SECURITY_TOKEN_VARIABLE) or None)


@attrs.define(eq=False)
class Account:
    """The credentials of one client; made by `open_account`."""

    signer: Signer
    provider: Provider | None = None
    """None for credentials that never change."""
    _asking: trio.Lock = attrs.Factory(trio.Lock)
    _asked_at: float = -inf

    @property
    def credentials(self) -> Credentials:
        """The credentials that sign now."""
        return self.signer.credentials

    async def run(self) -> None:
        """Ask the provider every five minutes."""
        if self.provider is None:
            return
        async for _ in every(CREDENTIALS_INTERVAL, first_after=CREDENTIALS_INTERVAL):
            await self.renewed(self.credentials)

    async def renewed(self, refused: Credentials) -> bool:
        """Return whether there are other credentials than the refused ones by now; ask the provider if need be."""
        if self.provider is None:
            return False
        async with self._asking:
            is_recent = trio.current_time() - self._asked_at < PROVIDER_PAUSE
            # In the lock: while this request waited another one may have brought the answer.
            if self.credentials == refused and not is_recent:
                await self._ask(self.provider)
        return self.credentials != refused

    async def _ask(self, provider: Provider) -> None:
        try:
            found = await ask_provider(provider)
        # A provider may fail in any way; the credentials that it gave before may still be good.
        except Exception as error:
            logger.warning("credentials not renewed error=%s", described(error))
        else:
            if found != self.credentials:
                logger.info("credentials renewed access_key=%s", found.access_key)
                self.signer.credentials = found
        self._asked_at = trio.current_time()


async def open_account(
    given: GivenCredentials, *, wall_clock: WallClock | None = None
) -> Account | None:
    """Return the account of a client, None without credentials; `wall_clock` gives the time of its proofs.

    Raises ConfigError for wrong arguments, and what a provider raises.
    """
    now_ms = (wall_clock or SystemWallClock()).now_ms
    credentials = given_credentials(given)
    if credentials is None or isinstance(credentials, Credentials):
        return None if credentials is None else Account(Signer(credentials, now_ms=now_ms))
    return Account(Signer(await ask_provider(credentials), now_ms=now_ms), credentials)


async def ask_provider(provider: Provider) -> Credentials:
    """Return what the provider returns; a plain function runs in a worker thread, because it may read files.

    Raises what it raises, and ConfigError if it takes too long or returns anything else.
    """
    with trio.move_on_after(PROVIDER_TIMEOUT) as waiting:
        # The second test is for objects with an async `__call__`. What no test sees is a function that returns an
        # awaitable; trio would refuse that as the result of a worker thread, unless it is in a tuple.
        if inspect.iscoroutinefunction(provider) or inspect.iscoroutinefunction(
            getattr(provider, "__call__", None)  # noqa: B004
        ):
            found = provider()
        else:
            [found] = await trio.to_thread.run_sync(lambda: (provider(),), abandon_on_cancel=True)
        if inspect.isawaitable(found):
            found = await found
        if not isinstance(found, Credentials):
            raise ConfigError(
                f"the provider of credentials returned {type(found).__name__}, not Credentials"
            )
        return found
    assert waiting.cancelled_caught
    raise ConfigError(f"the provider of credentials did not return within {PROVIDER_TIMEOUT:g} s")


def described(error: Exception) -> str:
    """Return an error for the log; only its type if it is not one of rocketrio's, whose texts hold no secrets."""
    return str(error) if isinstance(error, Error | OSError) else type(error).__name__
