"""Masters of both products with the same protection, each with its own product's client: none, accounts, TLS, both.

Neither has a slave. Certificates are ECDSA P-256 and checked by both clients. The account has no more rights than it
needs: ours from `plain_acl.yml`, Apache's by users and policies. CPU is that of master and client.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import attrs
import trio
from tests.interop.jars import apache_jars
from tests.interop.secured import ADMIN, access_settings
from tests.interop.tls_peers import Certificates, as_options, as_settings, make_certificates
from tests.support.private_files import account_file

from peers import our_client
from peers.clusters import APACHE_VERSION, Extra, Member, apache_master, our_master
from peers.figures import CpuMeter, Run, alternate, tell_rates
from peers.java import JavaWorker
from peers.our_client import QUEUES
from peers.sides import Job, Scale, java_client
from rocketrio import Credentials, TlsOptions
from rocketrio.admin.admin import open_admin

OWN = Credentials("benchmark", "benchmark-secret")
RIGHTS = {"Topic:bench*": ["Pub", "Sub", "Get"], "Group:bench*": ["Sub", "Get"]}
SIZE = 128
BATCH = 100
IN_FLIGHT = 64
SINGLES, BATCHES = "bench-singles", "bench-batches"
PROTECTIONS = {
    "plain": (False, False),
    "access": (True, False),
    "tls": (False, True),
    "access_and_tls": (True, True),
}


@attrs.frozen
class Pair:
    """What a name server serves, and Java's client of it."""

    name_server: Member
    master: Member
    java: JavaWorker | None = None

    def theirs(self, count: int, *words: object) -> Callable[[], Run]:
        java = self.java
        assert java is not None

        def run() -> Run:
            meter = CpuMeter({"master": [self.master.pid], "client": [java.pid]})
            return Run(count, java.seconds(*words), meter.used())

        return run

    def mine(self, count: int, job: Job) -> Callable[[], Run]:
        def run() -> Run:
            meter = CpuMeter({"master": [self.master.pid], "client": [os.getpid()]})
            return Run(count, trio.run(job, self.name_server.address), meter.used())

        return run


def measure(scale: Scale) -> None:
    """Sends and a consumer. Raises UnavailableError."""
    apache_jars(APACHE_VERSION)
    for protection, (with_access, with_tls) in PROTECTIONS.items():
        with (
            tempfile.TemporaryDirectory(prefix="bench-protected-") as folder,
            _pairs(Path(folder), with_access=with_access, with_tls=with_tls) as (ours, theirs),
        ):
            _compare(scale, protection, ours, theirs)


def _compare(scale: Scale, protection: str, ours: Pair, theirs: Pair) -> None:
    singles, batched = scale.singles, scale.batched[SIZE]
    send = partial(
        our_client.send_singles, topic=SINGLES, count=singles, in_flight=IN_FLIGHT, size=SIZE
    )
    batches = partial(our_client.send_batches, topic=BATCHES, count=batched, batch=BATCH, size=SIZE)
    consume = partial(our_client.consume_one_by_one, topic=BATCHES, count=batched)
    for name, count, job, words in (
        ("send_in_flight_64", singles, send, ("singles", SINGLES, singles, IN_FLIGHT, SIZE)),
        ("send_batches_of_100", batched, batches, ("batches", BATCHES, batched, BATCH, SIZE)),
        ("consume_one_by_one", batched, consume, ("lite", BATCHES, batched)),
    ):  # fmt: skip
        work = {"ours": ours.mine(count, job), "theirs": theirs.theirs(count, *words)}
        runs = alternate(scale.rounds, work, warm_up=scale.warm_up)
        tell_rates(f"{protection}.{name}", runs["ours"], runs["theirs"], body=SIZE)


@contextmanager
def _pairs(folder: Path, *, with_access: bool, with_tls: bool) -> Iterator[tuple[Pair, Pair]]:
    """Start both products with this protection, and our client's environment."""
    certificates = make_certificates(folder / "certificates") if with_tls else None
    inner = account_file(folder / "inner.yml", ADMIN) if with_access else None
    account = (f"-Dstory.accessKey={OWN.access_key}", f"-Dstory.secretKey={OWN.secret_key}")
    java = (
        *(account if with_access else ()),
        *(() if certificates is None else certificates.java_client(folder / "java")),
    )
    with ExitStack() as stack:
        ours = stack.enter_context(
            our_master(folder / "ours", _of_ours(folder, inner, certificates))
        )
        theirs = stack.enter_context(
            apache_master(folder / "apache", _of_apache(folder, inner, certificates))
        )
        tls = None if certificates is None else TlsOptions(certificates.client.authority)
        admin = None if inner is None else ADMIN
        for name_server, _ in (ours, theirs):
            is_apache = name_server is theirs[0]
            trio.run(_prepare, name_server.address, admin, tls, with_access and is_apache)
        stack.enter_context(_environment(with_access, tls))
        worker = stack.enter_context(java_client(theirs[0].address, folder / "java-home", java))
        yield Pair(*ours), Pair(*theirs, worker)


def _of_ours(folder: Path, inner: Path | None, certificates: Certificates | None) -> Extra:
    settings: list[str] = []
    if inner is not None:
        users = folder / "plain_acl.yml"
        users.touch(0o600)
        topics = f"{SINGLES}=PUB|SUB, {BATCHES}=PUB|SUB"
        users.write_text(
            f"accounts:\n  - accessKey: {OWN.access_key}\n    secretKey: {OWN.secret_key}\n"
            f"    topicPerms: [{topics}]\n    defaultGroupPerm: SUB\n"
        )
        settings += [f"acl_file={users}", f"inner_credentials_file={inner}"]
    if certificates is None:
        return Extra(master=_set(settings))
    server = certificates.our_server()
    settings += as_settings({**server, **certificates.our_peers})
    return Extra(as_options(server), _set(settings), context=certificates.context)


def _of_apache(folder: Path, inner: Path | None, certificates: Certificates | None) -> Extra:
    settings: dict[str, object] = {} if inner is None else {**access_settings(APACHE_VERSION)}
    if certificates is None:
        return Extra(settings=settings)
    options = certificates.apache(folder / "tls")
    return Extra(options, options, settings, certificates.context)


def _set(settings: list[str]) -> tuple[str, ...]:
    return tuple(word for setting in settings for word in ("--set", setting))


@contextmanager
def _environment(with_access: bool, tls: TlsOptions | None) -> Iterator[None]:
    """Give our client account and authority, as a user's environment does."""
    given: dict[str, str] = {}
    if with_access:
        given |= {"ROCKETRIO_ACCESS_KEY": OWN.access_key, "ROCKETRIO_SECRET_KEY": OWN.secret_key}
    if tls is not None:
        given["ROCKETRIO_TLS_CA_FILE"] = str(tls.authority_file)
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


async def _prepare(
    name_server: str, account: Credentials | None, tls: TlsOptions | None, with_user: bool
) -> None:
    async with open_admin(name_servers=[name_server], credentials=account, tls=tls) as admin:
        for topic in (SINGLES, BATCHES):
            await admin.create_topic(topic, queues=QUEUES)
        if not with_user:
            return
        access = admin.access()
        await access.create_user(OWN.access_key, OWN.secret_key)
        for resource, actions in RIGHTS.items():
            await access.grant(OWN.access_key, [resource], actions)
