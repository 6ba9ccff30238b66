"""Settings of servers without the values that may be secrets, for files that leave the cluster."""

import re
from collections.abc import Mapping
from typing import Final

CUT: Final = "(cut)"

_SECRET_NAME: Final = re.compile(r"secret|passw|pwd|token|credential|key|sign", re.IGNORECASE)

_SECRET_VALUE: Final = re.compile(
    r"(secret|passw|pwd|token|credential|key)\w*[\"']?\s*[:=]|://[^/@\s]*:[^/@\s]*@|-----BEGIN",
    re.IGNORECASE,
)
"""Apache's brokers keep accounts in settings like initAuthenticationUser={"username":…,"password":…}."""


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings in which each value that may be a secret is replaced, sorted by name."""
    return {
        name: CUT if value and (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value)) else value
        for name, value in sorted(settings.items())
    }
