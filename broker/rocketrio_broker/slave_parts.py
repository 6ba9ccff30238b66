"""Creates a slave's side of replication: the log, the tables, and the progress of a long copy.

Answers to: BrokerController.changeToSlave.
"""

from rocketrio_broker.broker_parts import BrokerParts
from rocketrio_broker.config import BrokerConfig
from rocketrio_broker.ha.client import HAClient, HAClientState
from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.copy_progress import CopyWatch
from rocketrio_broker.ha.exchange import REPLICATION_KEY
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.peers import ask_settings
from rocketrio_broker.ha.resync import HistoryRules
from rocketrio_broker.ha.slave import SlaveReplication
from rocketrio_broker.ha.slave_synchronize import SlaveSynchronize
from rocketrio_broker.registration import BrokerRegistration
from rocketrio_protocol.errors import NotReachable
from rocketrio_protocol.remoting.pool import ChannelPool
from rocketrio_protocol.remoting.ports import Dial


def ha_config(config: BrokerConfig) -> HAConfig:
    """Return the settings of replication, for a master or a slave."""
    return HAConfig(
        send_heartbeat_interval=config.ha_send_heartbeat_interval,
        housekeeping_interval=config.ha_housekeeping_interval,
        transfer_batch_size=config.ha_transfer_batch_size,
        full_history_start=config.ha_full_history_start,
        acknowledge=config.ha_acknowledge,
    )


def slave_replication(
    config: BrokerConfig,
    parts: BrokerParts,
    registration: BrokerRegistration,
    pool: ChannelPool,
    ha_dial: Dial,
    *,
    is_proved: bool,
) -> SlaveReplication:
    """Create a slave's side of replication, for as long as the broker stays a slave.

    `ha_dial` connects to replication ports, and verifies the peer if `is_proved`.
    """
    master, ha_master = MasterAddress(), MasterAddress(config.ha_master_address)

    async def knows_epochs() -> bool:
        if is_proved:
            # Only rocketrio brokers are verified; an answer at the ordinary port would prove nothing.
            return True
        addr = master.value
        if addr is not None:
            return REPLICATION_KEY in await ask_settings(pool.call, addr)
        if config.name_servers:
            raise NotReachable("No name server has said yet who the master is", remedy="")
        return False

    client = HAClient(
        parts.store,
        address=ha_master,
        dial=ha_dial,
        wall_clock=parts.wall_clock,
        config=ha_config(config),
        level_clock=parts.level_clock,
        rules=lambda: HistoryRules(
            divergent_tail=parts.config.broker.ha_divergent_tail,
            missing_history=parts.config.broker.ha_missing_history,
        ),
        knows_epochs=knows_epochs,
        broker_id=lambda: parts.config.broker.broker_id,
    )
    parts.level_clock.forget()
    synchronize = SlaveSynchronize(
        call=pool.call,
        master=master,
        topics=parts.topics,
        groups=parts.groups,
        consumer_offsets=parts.consumer_offsets,
        delay_offset_file=parts.delay_offsets.file,
        flushed=parts.store.flushed,
        gate=parts.store.read_gate,
        followed=client.followed,
        is_following=lambda: client.state is HAClientState.FOLLOWING,
        own_name=lambda: (parts.config.broker.broker_id, client.local_addr),
        epoch=lambda: parts.reader_epochs.current,
        period=config.slave_sync_period,
    )
    return SlaveReplication(
        client,
        synchronize,
        CopyWatch(client, parts.store, call=pool.call, master=master),
        registration=registration,
        master=master,
        ha_master=ha_master,
        ha_master_is_fixed=config.ha_master_address is not None,
    )
