"""Who may look into a data directory, and what may lie in it (`store/data_directory.py`)."""

import stat
from pathlib import Path

import pytest
from tests.support.stores import opened, put_of, read_all, stored

from rocketrio_broker.broker import open_broker
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.store.errors import StoreLinkedError

pytestmark = pytest.mark.usefixtures("usual_umask")


async def fill(root: Path) -> None:
    async with opened(InlineDisk(), root=root) as store:
        stored(store.append(put_of(b"a message")))


async def test_broker_leaves_nothing_that_others_can_read(tmp_path: Path) -> None:
    config = BrokerConfig(data=tmp_path / "data", listen="127.0.0.1:0")
    async with open_broker(config) as broker:
        stored(broker.store.append(put_of(b"a message")))
    made = [config.data, *config.data.rglob("*")]
    assert config.data / "config" / "rocketrioQueueLocks.json" in made
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o600}


@pytest.mark.parametrize(
    "name", ["commitlog", "consumequeue", "consumequeue/orders", "consumequeue/orders/0", "index"]
)
async def test_folder_behind_a_link_is_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "some" / "where" / "data"
    await fill(root)
    away = tmp_path / "away"
    (root / name).rename(away)
    (root / name).symlink_to(away)
    with pytest.raises(StoreLinkedError, match=f"{root / name} is a symbolic link.*mount it there"):
        await fill(root)
    (root / name).unlink()
    away.rename(root / name)
    await fill(root)


@pytest.mark.parametrize("name", ["lock", "checkpoint", "config/topics.json"])
async def test_file_behind_a_link_is_refused_and_what_it_leads_to_is_left_alone(
    tmp_path: Path, name: str
) -> None:
    root = tmp_path / "data"
    (root / "config").mkdir(parents=True)
    target = tmp_path / "precious"
    target.write_text("not to be touched")
    (root / name).symlink_to(target)
    with pytest.raises(StoreLinkedError, match=f"{name} is a symbolic link"):
        await fill(root)
    assert target.read_text() == "not to be touched"


async def test_data_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "large disk")
    for _ in range(2):
        await fill(tmp_path / "data")
    async with opened(InlineDisk(), root=tmp_path / "data") as store:
        assert len(read_all(store, "orders")) == 2


async def test_directory_that_others_can_read_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "data"
    root.mkdir(0o755)
    await fill(root)
    assert f"remedy=chmod 700 {root}" in caplog.text
    caplog.clear()
    root.chmod(0o700)
    await fill(root)
    assert "chmod" not in caplog.text
