"""No cache keeps what strangers send: each one is named here, with what bounds its keys.

Name each new `lru_cache` in `BOUNDED`, with the function that strangers reach, or in `OWN` if its keys never
come from a peer.
"""

import functools
import gc
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import rocketrio
import rocketrio_broker
import rocketrio_protocol
from rocketrio_broker.access.needs import topic_need
from rocketrio_broker.processors.tag_expression import tags_codes
from rocketrio_broker.store.dispatch import stored_tags_code
from rocketrio_broker.store.key_hashes import key_hashes
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.record import decode
from rocketrio_protocol.record.java_hash import java_ordered, tags_code
from rocketrio_protocol.rendezvous import weight
from rocketrio_protocol.signature import Signer, signature
from tests.support.further import every_other

OWN: Final = {
    "rocketrio_protocol.log_lines.parsed_form": "forms of log lines, which are in the code",
    "rocketrio_protocol.filter.sql92._parser": "no key",
    "rocketrio_protocol.access.white_addresses.numeric_address": "hosts of connections",
    "rocketrio_protocol.signature._pads": "secrets of users and of the program",
    "rocketrio_broker.processors.send._packed_addr": "addresses of connections",
    "rocketrio_broker.store.read._entries_struct": "counts up to the limit of a pull",
    "rocketrio_protocol.record.encode.record_shape": "topics, whose length the store has checked",
    "rocketrio.producing.publish_route._key_code": "what the program sends",
    "rocketrio.producing.outgoing._topic_problem": "what the program sends",
    "rocketrio.producing.outgoing._properties_tail": "what the program sends",
    "rocketrio.producing.outgoing._plain_end": "what the program sends",
    "rocketrio.producing.send_request._head": "names that `json_frame` has checked",
    "rocketrio.cli.format_strings.message_printer": "words of a command line",
    "rocketrio.cli.format_strings.row_printer": "words of a command line",
    "rocketrio.cli.format_strings.has_body": "words of a command line",
}
"""Caches whose keys no peer chooses, with where they come from."""

BOUNDED: Final[dict[str, Callable[[str], object]]] = {
    "rocketrio_protocol.signature._values_in_order": lambda text: signature(b"s", {text: "x"}, b""),
    "rocketrio_protocol.rendezvous._weight": lambda text: weight(text, 1),
    "rocketrio_protocol.record.java_hash._kept_spread": lambda text: java_ordered({text: "x"}),
    "rocketrio_protocol.record.java_hash.java_string_hash": tags_code,
    "rocketrio_protocol.record.decode._kept_topic_text": (
        lambda text: decode._topic_text(text.encode())
    ),
    "rocketrio_protocol.bodies.fastjson._remembering.<locals>.short_text": (
        lambda text: [
            fastjson.dumps(each)
            for each in (TopicConfig(text), SubscriptionGroupConfig(group_name=text))
        ]
    ),
    "rocketrio_broker.access.needs._topic_need": lambda text: topic_need(text, 1),
    "rocketrio_broker.processors.tag_expression._codes": lambda text: tags_codes(text[:60_000]),
    "rocketrio_broker.store.dispatch._code_of_tags": (
        lambda text: stored_tags_code(f"TAGS\x01{text}\x02".encode())
    ),
    "rocketrio_broker.store.key_hashes._head_hash": (
        lambda text: key_hashes(b"t", f"UNIQ_KEY\x01{text}\x02KEYS\x01{text}\x02".encode())
    ),
}
"""Caches whose keys peers choose, with the way by which a text of a peer reaches each."""

LONG: Final = 60_000
COUNT: Final = 8
KEPT_LIMIT: Final = 64 << 10
"""Bytes that a cache may keep of `COUNT` long texts, 480 kB in all."""


def every_module() -> None:
    for package in (rocketrio_protocol, rocketrio_broker, rocketrio):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__") and ".spark" not in found.name:
                importlib.import_module(found.name)


def living_caches() -> Iterator[tuple[str, Any]]:
    """Yield every cache of the source, also those that functions have made."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()  # What is frozen is not found.
    everything = gc.get_objects()
    if frozen:
        gc.freeze()
    for found in everything:
        if type(found) is functools._lru_cache_wrapper:
            name = f"{found.__wrapped__.__module__}.{found.__wrapped__.__qualname__}"
            # The one of Spark's options is there if another test has imported them; its keys are classes.
            if name.startswith("rocketrio") and not name.startswith("rocketrio.spark."):
                yield name, found


@pytest.fixture(scope="module")
def caches() -> list[tuple[str, Any]]:
    every_module()
    fastjson.dumps([TopicConfig("t"), SubscriptionGroupConfig(group_name="g")])
    return list(living_caches())


def kept_size(cache: object) -> int:
    """Return the bytes of everything that one cache keeps alive."""
    seen: set[int] = set()
    size, waiting = 0, [cache]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type) or (callable(one) and one is not cache):
            continue
        seen.add(id(one))
        size += sys.getsizeof(one)
        waiting += gc.get_referents(one)
    return size


@pytest.mark.slow
def test_every_cache_is_named_here_with_what_bounds_its_keys(
    caches: list[tuple[str, Any]],
) -> None:
    assert {name for name, _ in caches} == {*OWN, *BOUNDED}


@pytest.mark.parametrize("letter", every_other(["\N{GRINNING FACE}", "x"]))
@pytest.mark.parametrize("name", BOUNDED)
def test_cache_keeps_no_long_text_of_a_peer(
    caches: list[tuple[str, Any]], name: str, letter: str
) -> None:
    reach = BOUNDED[name]
    found = [cache for each, cache in caches if each == name]
    for cache in found:
        cache.cache_clear()
    for number in range(COUNT):
        reach(f"{number}" + letter * (LONG // len(letter.encode())))
    assert max(kept_size(cache) for cache in found) < KEPT_LIMIT


def test_signer_remembers_no_long_names_either(caches: list[tuple[str, Any]]) -> None:
    signer = Signer(Credentials("a", "s"))
    (cache,) = (each for name, each in caches if name.endswith("_values_in_order"))
    before = cache.cache_info().currsize
    signer.signed({"x" * LONG: "y"}, b"")
    assert cache.cache_info().currsize == before
