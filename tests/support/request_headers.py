"""All requests that headers describe."""

import pkgutil
from importlib import import_module
from typing import Final

from rocketrio_protocol import commands
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader

COMMANDS: Final[dict[RequestCode, tuple[type[RequestHeader], type[Header]]]] = {
    each.code: (each, each.answers)
    for family in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}.")
    for each in vars(import_module(family.name)).values()
    if isinstance(each, type) and issubclass(each, RequestHeader) and each is not RequestHeader
}
"""(header of the request, header of its answer) by request code."""
