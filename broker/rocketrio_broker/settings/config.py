"""The settings of one broker, with RocketMQ's names and defaults; times in seconds, sizes in bytes.

`loading.py` builds them from file, environment and command line; `LiveConfig` is the copy that the parts of a
running broker share, and that UPDATE_BROKER_CONFIG (25) changes.

Answers to: BrokerConfig, NamesrvConfig; RocketMQ reference, section 12.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

import attrs
from attrs import validators

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.settings.setting import (
    MS,
    NOT_SHOWN,
    Flag,
    checked_words,
    not_negative,
    positive,
    setting,
)
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.access.white_addresses import AddressPattern
from rocketrio_protocol.bodies.topics import DataVersion
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.ha.stream import TRANSFER_SIZE_LIMIT
from rocketrio_protocol.names import REPLY_TOPIC_POSTFIX, topic_name_problem
from rocketrio_protocol.remoting.ports import WallClock, join_addr, name_server_addrs, split_addr
from rocketrio_protocol.remoting.server_limits import (
    CONNECTION_LIMIT,
    HOST_CONNECTION_LIMIT,
    UNFINISHED_SIZE_LIMIT,
    UNSENT_SIZE_LIMIT,
    ServerLimits,
)
from rocketrio_protocol.remoting.tls_files import ClientAuth

Role = Literal["async-master", "sync-master", "slave"]
ROLES: Final = get_args(Role)
MasterRole = Literal["async-master", "sync-master"]
MASTER_ROLES: Final = get_args(MasterRole)

TlsMode = Literal["disabled", "permissive", "enforcing"]
TLS_MODES: Final = get_args(TlsMode)

FIRST_SLAVE_ID: Final = 1
LOOPBACK: Final = "127.0.0.1"
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_USED_LABELS: Final = frozenset(
    {"cluster", "node_id", "node_type", "topic", "consumer_group", "le"}
)
_HA_PORT_DISTANCE: Final = 1  # haListenPort = listenPort + 1


@attrs.frozen(kw_only=True)
class ServerTlsSettings:
    """The TLS of a broker's client ports, or of a name server."""

    mode: TlsMode | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password_file: Path | None = None
    client_authority_file: Path | None = None
    client_auth: ClientAuth | None = None

    @property
    def effective_mode(self) -> TlsMode:
        """The mode, as given or by default."""
        return self.mode or ("disabled" if self.certificate_file is None else "enforcing")

    @property
    def effective_client_auth(self) -> ClientAuth:
        """Whether clients are asked for a certificate, as given or by default."""
        return self.client_auth or ("none" if self.client_authority_file is None else "require")


@attrs.frozen(kw_only=True, field_transformer=checked_words)
class BrokerConfig:
    """The settings of one broker."""

    cluster_name: str = setting(
        "DefaultCluster",
        "Cluster the broker belongs to.",
        java="brokerClusterName",
        flag=Flag("--cluster", "Name of the cluster."),
    )
    broker_name: str = setting(
        "broker-a",
        "Name that a master and its slaves share; clients see one broker per name.",
        flag=Flag("--name", "Name that a master and its slaves share."),
    )
    broker_id: int = setting(
        MASTER_ID,
        "0 for the master, 1 and up for its slaves; unique within the broker name.",
        not_negative,
        flag=Flag("--id", "0 for the master."),
    )
    role: Role = setting(
        "async-master",
        "async-master: answers before slaves have a message; sync-master: waits until "
        "in_sync_slaves of them have it; slave: follows the master.",
        java="brokerRole",
        flag=Flag("--role", "Role of the broker within its broker name."),
    )
    listen: str = setting(
        "127.0.0.1:10911",
        "Address to serve clients on; port 0 picks a free port.",
        java=NOT_SHOWN,
        flag=Flag("--listen", "Address to serve clients on.", split_addr),
    )
    ha_listen: str | None = setting(
        None,
        "Address to serve slaves on; by default the port after that of `listen`.",
        java=NOT_SHOWN,
        flag=Flag("--ha-listen", "Address to serve slaves on.", split_addr),
    )
    address: str | None = setting(
        None,
        "Address to register for clients, if it differs from `listen` (NAT, 0.0.0.0); "
        "port 0 is the port that was bound.",
        java=NOT_SHOWN,
    )
    ha_address: str | None = setting(
        None, "Address to register for slaves, if it differs from `ha_listen`.", java=NOT_SHOWN
    )
    namesrv: str = setting(
        "",
        "Name servers, host:port, several separated by `;`.",
        java="namesrvAddr",
        flag=Flag(
            "--namesrv", "Addresses of the name servers, separated by `;`.", name_server_addrs
        ),
    )
    data: Path = setting(
        Path("rocketrio-data"),
        "Directory for all data of the broker.",
        java="storePathRootDir",
        flag=Flag("--data", "Directory for all data of the broker."),
    )

    broker_permission: int = setting(
        6,
        "6: read and write; 4: read only, and routes show producers no queue here.",
        not_negative,
        live=True,
    )
    auto_create_topic_enable: bool = setting(
        True, "Whether a message to an unknown topic creates it.", live=True
    )
    default_topic_queue_nums: int = setting(
        8, "The most queues of a topic created that way; clients normally ask for 4.", positive
    )
    auto_create_subscription_group: bool = setting(
        True, "Whether an unknown consumer group is created when it first connects.", live=True
    )
    topics_limit: int = setting(
        20_000,
        "The most topics, retry and dead-letter topics included; no request creates more. A slave copies the whole "
        "table in one answer of at most 16 MiB.",
        positive,
        live=True,
    )
    groups_limit: int = setting(
        10_000,
        "The most consumer groups; any further group is served with the defaults and is not stored.",
        positive,
        live=True,
    )
    trace_topic_enable: bool = setting(False, "Whether the topic for message traces is created.")
    trace_on: bool = setting(
        True, "The value of TRACE_ON in answers to sends, about tracing.", live=True
    )
    region_id: str = setting("DefaultRegion", "The value of MSG_REGION in answers to sends.")

    connection_limit: int = setting(
        CONNECTION_LIMIT,
        "The most connections; at the limit, the host with the most loses its longest idle one to a host with fewer.",
        positive,
    )
    host_connection_limit: int = setting(
        HOST_CONNECTION_LIMIT,
        "The most connections of one host (IPv6: of one /64 network); raise it if all clients use one gateway.",
        positive,
    )
    unfinished_size_limit: int = setting(
        UNFINISHED_SIZE_LIMIT,
        "The most bytes of all incomplete requests; at the limit, the connection with the most is closed.",
        positive,
    )
    unsent_size_limit: int = setting(
        UNSENT_SIZE_LIMIT,
        "The most bytes of all unread answers; at the limit, the connection with the most is closed.",
        positive,
    )

    tls_mode: TlsMode | None = setting(
        None,
        "TLS of both client ports. enforcing: plain connections are closed; permissive: both are served; disabled: "
        "no TLS. By default enforcing with a tls_certificate_file, disabled without.",
    )
    tls_certificate_file: Path | None = setting(
        None, "This broker's certificate for clients (PEM)."
    )
    tls_key_file: Path | None = setting(
        None,
        "The key of that certificate, if it is in another file; others must not read it. ECDSA P-256 costs least.",
    )
    tls_key_password_file: Path | None = setting(None, "The password of that key, if it has one.")
    tls_client_authority_file: Path | None = setting(
        None, "The authority that signs the certificates of clients (PEM)."
    )
    tls_client_auth: ClientAuth | None = setting(
        None,
        "Whether clients are asked for a certificate: none, optional (they may have none), require. By default "
        "require with a tls_client_authority_file, none without. A certificate that is shown must be valid.",
    )
    peer_tls: bool | None = setting(
        None,
        "Whether name servers and other brokers are asked with TLS. By default if tls_mode is enforcing.",
    )
    peer_tls_authority_file: Path | None = setting(
        None,
        "The authority that signs the certificates of name servers and brokers (PEM); by default those that this "
        "machine trusts.",
    )
    peer_tls_certificate_file: Path | None = setting(
        None, "This broker's certificate for name servers and brokers that ask for one (PEM)."
    )
    peer_tls_key_file: Path | None = setting(
        None, "The key of that certificate, if it is in another file."
    )
    peer_tls_check_host_name: bool = setting(
        True,
        "Whether certificates of name servers and brokers must name the host that was dialled. false: for an "
        "authority that signs nothing but this cluster's certificates.",
    )

    long_polling_enable: bool = setting(
        True, "Whether a pull at the end of a queue waits as long as it asks to.", live=True
    )
    short_polling_time: float = setting(
        1.0,
        "Seconds such a pull waits where long polling is off.",
        positive,
        java="shortPollingTimeMills",
        unit=MS,
        live=True,
    )
    slave_read_enable: bool = setting(
        False, "Whether readers far behind are sent to a slave.", live=True
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True, "Whether members of a group are notified when a member joins or leaves.", live=True
    )
    static_member_grace_limit: float = setting(
        300.0,
        "The most seconds that a static member stays in the list of its group after its "
        "connection ended; 0: not at all.",
        not_negative,
        unit=MS,
        live=True,
    )
    enable_property_filter: bool = setting(
        True,
        "Whether SQL92 subscriptions are accepted; the broker then reads the properties of each message "
        "(Apache's default is false).",
        live=True,
    )
    store_reply_message_enable: bool = setting(
        True,
        "Whether replies to requests are stored too, in <cluster_name>_REPLY_TOPIC.",
        live=True,
    )
    max_pull_message_size: int = setting(
        1024,
        "The most messages of one pull, whatever it asks for (also limited by the store).",
        positive,
        live=True,
    )

    register_name_server_period: float = setting(
        30.0,
        "Seconds between registrations at the name servers.",
        validators.ge(1),
        validators.le(60),
        unit=MS,
        live=True,
    )
    register_broker_timeout: float = setting(
        6.0,
        "Seconds one registration may take.",
        positive,
        java="registerBrokerTimeoutMills",
        unit=MS,
        live=True,
    )
    compressed_register: bool = setting(False, "Whether registrations are compressed.", live=True)
    flush_consumer_offset_interval: float = setting(
        5.0, "Seconds between writes of consumerOffset.json.", positive, unit=MS
    )

    flush_delay_offset_interval: float = setting(
        10.0, "Seconds between writes of delayOffset.json.", positive, unit=MS
    )
    reject_transaction_message: bool = setting(
        False, "Whether half messages, with which transactions begin, are refused.", live=True
    )
    transaction_timeout: float = setting(
        6.0,
        "Seconds a transaction may stay undecided before its producer is asked, where the message does "
        "not say otherwise (CHECK_IMMUNITY_TIME_IN_SECONDS).",
        not_negative,
        java="transactionTimeOut",
        unit=MS,
        live=True,
    )
    transaction_check_interval: float = setting(
        30.0, "Seconds between scans for such transactions.", positive, unit=MS, live=True
    )
    transaction_check_max: int = setting(
        15,
        "How often a producer is asked; then the message goes to TRANS_CHECK_MAX_TIME_TOPIC.",
        positive,
        live=True,
    )

    ha_send_heartbeat_interval: float = setting(
        5.0,
        "Seconds after which either end of an idle replication connection sends a heartbeat.",
        positive,
        unit=MS,
    )
    ha_housekeeping_interval: float = setting(
        20.0,
        "Seconds without data after which a replication connection is closed.",
        positive,
        unit=MS,
    )
    ha_transfer_batch_size: int = setting(
        1 << 20,
        "The most bytes of one replication transfer; Apache's slaves accept up to 4 MiB less 12 bytes.",
        positive,
        validators.le(TRANSFER_SIZE_LIMIT),
    )
    ha_full_history_start: bool = setting(
        True,
        "Whether an empty slave gets the log from its first byte; "
        "otherwise only the last file, as from Apache.",
    )
    ha_slave_fallbehind_max: int = setting(
        256 << 20,
        "The most bytes that a slave may lag and still be waited for by a sync-master.",
        positive,
    )
    in_sync_slaves: int = setting(
        1,
        "Slaves that must have a message before a sync-master answers PUT_OK "
        "(Apache's inSyncReplicas counts the master too).",
        validators.ge(1),
        validators.le(SLAVES_LIMIT),
    )
    slave_timeout: float = setting(
        3.0, "Seconds a send to a sync-master waits for its slaves.", positive, unit=MS
    )
    ha_unconfirmed_reads: Literal["serve", "wait"] = setting(
        "serve",
        "Messages of a sync-master that too few slaves have: serve (readers get them once this disk has them and "
        "slave_timeout has passed), or wait (readers do not get them until slaves have them).",
        live=True,
    )
    ha_confirmed_reads: bool = setting(
        False, "Whether readers of an async-master too see only what in_sync_slaves slaves have."
    )
    ha_acknowledge: Literal["memory", "disk"] = setting(
        "memory",
        "What a slave reports to its master: what it holds (memory, as Apache's do) or what its "
        "disk has (disk: it then flushes after each transfer).",
    )
    ha_divergent_tail: Literal["refuse", "cut"] = setting(
        "refuse",
        "What a slave does if its log diverges from the master's: refuse (it logs where, and waits for an "
        "operator), or cut (it moves its end to the data directory's folder `cut`, and follows).",
        live=True,
    )
    ha_missing_history: Literal["refuse", "restart"] = setting(
        "refuse",
        "What a slave does if its log ends before the master's begins: refuse, or restart (it deletes its "
        "log and copies the master's from the first byte).",
        live=True,
    )
    unreadable_tables: Literal["refuse", "drop"] = setting(
        "refuse",
        "What a master with messages does if its files of topics, groups or offsets exist but cannot be read, and no "
        "slave has their content: refuse (it does not start), or drop (it goes on without; set this for one start).",
    )
    ha_return: Literal["serve", "wait"] = setting(
        "serve",
        "What a broker that becomes master does if it cannot ask a slave for messages that it may lack: "
        "serve (after ha_return_wait, with a warning), or wait.",
        live=True,
    )
    ha_return_wait: float = setting(
        10.0,
        "Seconds such a broker tries to reach a slave that cannot be asked, and an empty sync-master waits for one.",
        positive,
        unit=MS,
        live=True,
    )
    ha_return_role: Literal["follow", "stand-aside"] = setting(
        "follow",
        "What a master does if another master of its name takes writes: follow (it becomes that one's slave under a "
        "free id, now and after restarts), or stand-aside (it takes no writes and checks again). Beside an Apache "
        "master it always stands aside.",
        live=True,
    )
    ha_hand_over_on_stop: bool = setting(
        False,
        "Whether a sync-master that is stopped (SIGTERM) changes places with a slave first; ten seconds at most.",
        live=True,
    )
    ha_master_address: str | None = setting(
        None, "Replication address of the master; without it the slave asks the name server."
    )
    ha_secret_file: Path | None = setting(
        None,
        "File with a secret that both ends of a replication connection must prove to know; it "
        "authenticates every byte. Create it with `openssl rand -base64 32`, readable by its owner alone. Apache's "
        "brokers do not support it.",
    )
    ha_tls_certificate_file: Path | None = setting(
        None,
        "This broker's certificate (PEM): replication then uses TLS, and both ends verify each other.",
    )
    ha_tls_key_file: Path | None = setting(
        None, "The key of that certificate, if it is in another file."
    )
    ha_tls_authority_file: Path | None = setting(
        None,
        "The authority that signs the certificates of this cluster's brokers, and no others (PEM).",
    )
    acl_enable: bool = setting(
        False,
        "Whether each request must be signed by a user that may send it; acl_file sets it too.",
    )
    acl_file: str = setting(
        "",
        "Files of users and their rights, several separated by `;`, and folders of them: plain_acl.yml of RocketMQ 4, "
        "or .json as in config/rocketrioUsers.json, where a broker keeps its users without this setting.",
    )
    inner_credentials_file: Path | None = setting(
        None,
        "File with the accessKey and secretKey with which this broker signs what it asks name servers and "
        "other brokers; under access control they are a Super user.",
    )
    acl_white_addresses: bool = setting(
        False,
        "Whether the addresses in acl_file whose requests need no signature count; otherwise such a file is refused.",
    )
    acl_plain_signatures_from: str = setting(
        "",
        "Hosts, several separated by `;`, as 10.1.2.3 or 10.1.2.*, from which Apache's signature suffices for changes "
        "of users, rights and roles: where mqadmin runs, or brokers of an earlier version. From all others such "
        "requests need a proof, as rocketrio's clients add it, or a client certificate.",
    )
    ha_tls_peer_names: str = setting(
        "",
        "Names, several separated by `;`: the certificate of the other end must have one of them. By default each "
        "certificate of the authority counts.",
    )
    log_check_rate: int = setting(
        1 << 20,
        "Bytes per second at which the whole log is checked in the background, once a day; 0: not at all.",
        not_negative,
        live=True,
    )
    audit_log: Path | None = setting(
        None,
        "File that gets a line of JSON for each change that an operator makes; by default only the log does.",
    )
    metrics_listen: str = setting(
        "",
        "Address that serves metrics to Prometheus (extra `metrics`), for example :5557, which is port 5557 of "
        "127.0.0.1; empty: none, and nothing is counted for them.",
        java=NOT_SHOWN,
    )
    metrics_label: str = setting("", "Further labels of all metrics, `name:value,name:value`.")
    metrics_series_limit: int = setting(
        50_000,
        "The most topics or groups that each metric has a series for; how many are omitted is a metric too.",
        positive,
        java="metricsOtelCardinalityLimit",
    )
    slave_sync_period: float = setting(
        10.0, "Seconds between a slave's copies of topics, groups and offsets.", positive, unit=MS
    )
    store: StoreConfig = attrs.field(
        factory=StoreConfig, metadata={"help": "How messages are stored."}
    )

    def __attrs_post_init__(self) -> None:
        for what, name in (("cluster_name", self.cluster_name), ("broker_name", self.broker_name)):
            problem = topic_name_problem(name)
            if problem is not None:
                raise ConfigError(f"{what} is {name!r}, which cannot be a topic: {problem}")
        replies = f"{self.cluster_name}_{REPLY_TOPIC_POSTFIX}"
        if (problem := topic_name_problem(replies)) is not None:
            raise ConfigError(f"cluster_name: its topic {replies} cannot exist: {problem}")
        if (self.role == "slave") == (self.broker_id == MASTER_ID):
            raise ConfigError(
                f"broker_id is {self.broker_id} and role is {self.role}: "
                "a master has id 0 and a slave any other"
            )
        for addr in (
            self.listen,
            self.ha_listen,
            self.address,
            self.ha_address,
            self.metrics_address,
        ):
            if addr is not None:
                split_addr(addr)
        self.name_servers  # noqa: B018 - raises for a text that holds no address.
        self.metrics_labels  # noqa: B018 - raises for labels that cannot be used.
        self.plain_signature_hosts  # noqa: B018 - raises for a text that is no address.

    @property
    def metrics_address(self) -> str | None:
        """The address of the page of metrics, on loopback if no host is given; None without one."""
        listen = self.metrics_listen
        return f"{LOOPBACK}{listen}" if listen.startswith(":") else listen or None

    @property
    def metrics_labels(self) -> dict[str, str]:
        """The further labels of metrics. Raises ConfigError for a name that Prometheus does not allow."""
        pairs = (pair.partition(":") for pair in self.metrics_label.split(",") if pair.strip())
        labels = {name.strip(): value.strip() for name, _, value in pairs}
        for name in labels:
            if _LABEL_NAME.fullmatch(name) is None or name in _USED_LABELS:
                raise ConfigError(
                    f"metrics_label has the label {name!r}; a name has letters, digits and `_`, and is none of "
                    f"{', '.join(sorted(_USED_LABELS))}"
                )
        return labels

    @property
    def is_slave(self) -> bool:
        """Whether the broker follows a master."""
        return self.role == "slave"

    @property
    def is_access_controlled(self) -> bool:
        """Whether access control is on."""
        return self.acl_enable or bool(self.acl_file)

    @property
    def plain_signature_hosts(self) -> tuple[AddressPattern, ...]:
        """The hosts from which Apache's signature suffices for every request. Raises ConfigError."""
        parts = [part for part in self.acl_plain_signatures_from.split(";") if part.strip()]
        try:
            return tuple(pattern for part in parts for pattern in AddressPattern.parse_all(part))
        except ConfigError as error:
            raise ConfigError(f"acl_plain_signatures_from: {error.what}") from error

    @property
    def server_limits(self) -> ServerLimits:
        """The limits of what the clients of this broker may use together."""
        return ServerLimits(
            connections=self.connection_limit,
            host_connections=self.host_connection_limit,
            unfinished_size=self.unfinished_size_limit,
            unsent_size=self.unsent_size_limit,
        )

    @property
    def server_tls(self) -> "ServerTlsSettings":
        """The TLS of both client ports."""
        return ServerTlsSettings(
            mode=self.tls_mode,
            certificate_file=self.tls_certificate_file,
            key_file=self.tls_key_file,
            key_password_file=self.tls_key_password_file,
            client_authority_file=self.tls_client_authority_file,
            client_auth=self.tls_client_auth,
        )

    @property
    def uses_peer_tls(self) -> bool:
        """Whether name servers and other brokers are asked with TLS."""
        if self.peer_tls is None:
            return self.server_tls.effective_mode == "enforcing"
        return self.peer_tls

    @property
    def store_settings(self) -> StoreConfig:
        """The store's settings in this mode: if messages wait for disks, none is deleted before its time."""
        waits_for_disks = self.store.flush_disk_type == "sync" or self.ha_acknowledge == "disk"
        if not waits_for_disks or not self.store.clean_file_forcibly_enable:
            return self.store
        return attrs.evolve(self.store, clean_file_forcibly_enable=False)

    @property
    def gates_readers(self) -> bool:
        """Whether readers see only confirmed messages."""
        return self.role == "sync-master" or (
            self.role == "async-master" and self.ha_confirmed_reads
        )

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers as separate addresses."""
        return name_server_addrs(self.namesrv)

    @property
    def config_directory(self) -> Path:
        """The directory of topics, groups and offsets."""
        return self.data / "config"

    def ha_listen_for(self, bound: str) -> str:
        """Return the address on which to serve slaves, given the bound address of clients."""
        if self.ha_listen is not None:
            return self.ha_listen
        host, port = split_addr(bound)
        wanted = split_addr(self.listen)[1]
        # If clients have a free port, the next port may be in use: slaves get any free port.
        return join_addr(host, port + _HA_PORT_DISTANCE if wanted else 0)


SETTINGS: Final[Mapping[str, "attrs.Attribute[Any]"]] = {
    f"{table}{field.name}": field
    for table, kind in (("", BrokerConfig), ("store.", StoreConfig))
    for field in attrs.fields(kind)
    if field.name != "store"
}
"""Each setting by the path that `--set` names; its metadata is what `setting` was given."""


class LiveConfig:
    """The current settings of a running broker: read `broker` at each use, because it may have been replaced."""

    def __init__(
        self,
        broker: BrokerConfig,
        *,
        wall_clock: WallClock,
        configured: BrokerConfig | None = None,
    ) -> None:
        """Create it; `configured` are the settings at the start, if the broker has another role than they say."""
        self._wall_clock = wall_clock
        self.broker = broker
        self.configured = configured or broker
        """The settings at the start, of which only role and id are used."""
        self.data_version = DataVersion(timestamp=wall_clock.now_ms())
        self.changes = Watermark()
        """Counts the replacements, for parts that must act on them."""

    def replace(self, broker: BrokerConfig) -> None:
        """Use other settings from now on."""
        if broker == self.broker:
            return
        self.broker = broker
        self.data_version = self.data_version.next_version(self._wall_clock.now_ms())
        self.changes.advance(self.changes.value + 1)
