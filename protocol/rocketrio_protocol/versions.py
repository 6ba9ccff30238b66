"""Names of the versions that clients and brokers send as numbers.

Answers to: MQVersion.
"""

from typing import Final

_FIRST: Final = 212
"""The number of V4_0_0_SNAPSHOT; from here on each version has two numbers, its snapshot and itself."""
_END: Final = 612
"""The number after V5_9_9, which stands for every later version."""


def version_name(number: int) -> str:
    """Return the name of a version, such as `V5_3_3`; one name each for what is older and newer than the table."""
    if number < _FIRST:
        return "BEFORE_V4"
    if number >= _END:
        return "HIGHER_VERSION"
    place, is_release = divmod(number - _FIRST, 2)
    name = f"V{4 + place // 100}_{place // 10 % 10}_{place % 10}"
    return name if is_release else f"{name}_SNAPSHOT"


def version_number(name: str) -> int | None:
    """Return the number of a version by its name, as `4.9.7` or `V4_9_7`; None for another text."""
    wanted = "V" + name.upper().removeprefix("V").replace(".", "_")
    return next((number for number in range(_FIRST, _END) if version_name(number) == wanted), None)
