"""The main job of rocketrio, on real input, in real processes: `make demo`, or `python examples/demo`.

Exit codes: 0 everything was true; 1 something was not; 2 wrong use; 3 all true, but Spark was left out for lack of
Java; 130 after Ctrl-C, SIGTERM or a closed terminal.
"""

import logging
import shutil
import signal
import tempfile
from pathlib import Path

import click
import trio
from cluster import Demo
from flights import flights, read_table
from outage import survive_outage
from processes import ProcessFailedError, open_processes
from report import Report
from safety import rebuild_slave, send_safely
from spark_check import read_with_spark
from steps import consume_group, publish, start_cluster, watch_replication

from rocketrio import Error
from rocketrio_protocol.remoting.tasks import background_nursery

NOT_TRUE = 1
NO_JAVA = 3
INTERRUPTED = 130


@click.command()
@click.option(
    "--flights", "limit", type=click.IntRange(1), help="Take only the first N flights.", metavar="N"
)
@click.option("--keep", is_flag=True, help="Leave the brokers' data and logs where they are.")
def main(limit: int | None, keep: bool) -> None:
    """Publish, replicate, rebuild, consume, kill, recover and read with Spark 336,776 flights."""
    report = Report()
    folder = Path(tempfile.mkdtemp(prefix="rocketrio-demo-"))
    logging.basicConfig(filename=folder / "client.log", level=logging.INFO)
    exit_code = INTERRUPTED
    try:
        exit_code = trio.run(_run_until_signal, report, folder, limit)
        if exit_code == INTERRUPTED:
            report.console.print("[yellow]interrupted; every process was stopped[/]")
    except* (ProcessFailedError, Error) as failures:
        exit_code = NOT_TRUE
        for failure in failures.exceptions:
            report.console.print(f"[bold red]The demo could not go on:[/] {failure}")
    finally:
        if keep:
            report.console.print(f"data and logs are under {folder}")
        else:
            shutil.rmtree(folder)
    raise SystemExit(exit_code)


async def _run_until_signal(report: Report, folder: Path, limit: int | None) -> int:
    """A signal cancels, so that every process is stopped: brokers run on if only we die.

    A KeyboardInterrupt might come just when a broker was started and is not noted yet.
    """
    exit_code = INTERRUPTED
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with background_nursery() as nursery:

            async def wait_signal() -> None:
                await anext(signals)
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait_signal)
            exit_code = await _run(report, folder, limit)
    return exit_code


async def _run(report: Report, folder: Path, limit: int | None) -> int:
    with report.console.status("Reading the flights"):
        table = await trio.to_thread.run_sync(read_table, limit)
        messages = await trio.to_thread.run_sync(flights, table)
    async with open_processes(folder) as processes:
        demo = Demo(report, processes, folder)
        await start_cluster(demo)
        await publish(demo, messages)
        await watch_replication(demo)
        await send_safely(demo)
        await rebuild_slave(demo)
        await consume_group(demo, len(messages))
        await survive_outage(demo, len(messages))
        had_java = await read_with_spark(demo, table)
    if not report.summary():
        return NOT_TRUE
    return 0 if had_java else NO_JAVA


if __name__ == "__main__":
    main()
