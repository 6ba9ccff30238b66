"""A command that notes with which options it would open its client."""

import click
from click.testing import CliRunner, Result

from rocketrio.cli.cluster_options import client_options
from rocketrio.connect import ClientOptions

given: list[ClientOptions] = []
"""What each run of the command was given."""


@click.command()
@client_options
def command(client: ClientOptions, verbose: int) -> None:
    """Note the options."""
    given.append(client)


def run(*arguments: object, **environ: str) -> Result:
    """Run the command, which may refuse its arguments."""
    return CliRunner().invoke(command, [str(each) for each in arguments], env=environ)


def options_of(*arguments: object, **environ: str) -> ClientOptions:
    """Return what a command with these arguments gives to its client."""
    done = run(*arguments, **environ)
    assert done.exit_code == 0, done.output
    return given.pop()
