"""Completion in a real bash: of commands, options, and names that the cluster has."""

import os
import shutil
from pathlib import Path

import pytest
import trio
from tests.support.commands import LIMIT, ROCKETRIO, bash

from rocketrio import open_admin
from rocketrio_broker.embedded import EmbeddedCluster

COMPLETE = """
eval "$({rocketrio} completion bash)"
COMP_WORDS=({words} "{last}"); COMP_CWORD=$(({count}))
_rocketrio_completion {rocketrio}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


async def completed(line: str, env: dict[str, str]) -> tuple[list[str], str]:
    *words, last = line.split(" ")
    script = COMPLETE.format(
        rocketrio=ROCKETRIO, words=" ".join(words), last=last, count=len(words)
    )
    done = await bash(script, {**os.environ, **env})
    assert done.code == 0, done
    return done.out.split(), done.err


@pytest.mark.real
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
async def test_bash_completes_commands_options_and_names_of_the_cluster(tmp_path: Path) -> None:
    async with EmbeddedCluster(network="loopback") as cluster:
        async with open_admin(name_servers=cluster.name_servers) as admin:
            await admin.create_topic("orders", queues=1)
            await admin.create_group("billing")
        env = {
            "NAMESRV_ADDR": cluster.name_servers[0],
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        with trio.fail_after(LIMIT):
            assert await completed("rocketrio topic cr", env) == (["create"], "")
            assert await completed("rocketrio lag --per", env) == (["--per-broker"], "")
            # A busy machine may need more than the 0.3 seconds: the next Tab asks again.
            for line, name in (
                ("rocketrio topic show or", "orders"),
                ("rocketrio group show ", "billing"),
                ("rocketrio broker drain b", "broker-a"),
            ):
                found: list[str] = []
                while name not in found:
                    found, err = await completed(line, env)
                    assert err == ""
        assert oct((tmp_path / "cache" / "rocketrio" / "names.json").stat().st_mode)[-3:] == "600"
        with trio.fail_after(LIMIT):
            nobody = {**env, "NAMESRV_ADDR": "127.0.0.1:1", "ROCKETRIO_CONTEXT": "none"}
            for env in (nobody, {**nobody, "ROCKETRIO_CONTEXT": ""}):
                assert await completed("rocketrio topic show or", env) == ([], "")
