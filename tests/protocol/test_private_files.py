"""Who may read a file with a secret."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import _open_bits, read_private

ROOT, USER, OTHER = 0, 1000, 1001


@pytest.mark.parametrize(
    ("owner", "user", "mode", "is_open"),
    [
        (USER, USER, 0o600, False),
        (USER, USER, 0o400, False),
        (USER, USER, 0o440, True),
        (USER, USER, 0o640, True),
        (USER, USER, 0o620, True),
        (USER, USER, 0o604, True),
        (ROOT, USER, 0o440, False),  # A secret that Kubernetes mounts for a pod with fsGroup.
        (ROOT, USER, 0o640, False),
        (ROOT, USER, 0o660, True),
        (ROOT, USER, 0o450, True),
        (ROOT, USER, 0o444, True),
        (OTHER, USER, 0o640, True),
        (ROOT, ROOT, 0o600, False),
        (ROOT, ROOT, 0o640, True),
        (USER, ROOT, 0o640, True),
    ],
)
def test_group_may_read_a_file_of_root_for_another_user_alone(
    owner: int, user: int, mode: int, is_open: bool
) -> None:
    assert bool(mode & _open_bits(owner, user)) is is_open


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != ROOT, reason="only root can give a file to root")
@pytest.mark.parametrize(("mode", "is_read"), [(0o440, True), (0o444, False)])
def test_secret_of_a_kubernetes_volume_is_read(mode: int, is_read: bool) -> None:
    with TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        file = Path(name) / "secret"
        file.write_text("key")
        os.chown(file, ROOT, OTHER)
        file.chmod(mode)
        child = os.fork()
        if child == 0:
            os.setgroups([OTHER])
            os.setgid(USER)
            os.setuid(USER)
            try:
                os._exit(read_private(file, "secret", size_max=99) != b"key")
            except ConfigError:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (0 if is_read else 2)
