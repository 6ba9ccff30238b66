"""The environment variables of clients and of the command `rocketrio`, which help texts and errors name."""

from typing import Final

NAME_SERVERS_VARIABLE: Final = "NAMESRV_ADDR"
"""The environment variable that RocketMQ users know: `host:port`, several separated by semicolons."""
DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
ACCESS_KEY_VARIABLE: Final = "ROCKETRIO_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETRIO_SECRET_KEY"
SECURITY_TOKEN_VARIABLE: Final = "ROCKETRIO_SECURITY_TOKEN"
CREDENTIALS_FILE_VARIABLE: Final = "ROCKETRIO_CREDENTIALS_FILE"
TLS_VARIABLE: Final = "ROCKETRIO_TLS"
TLS_CA_FILE_VARIABLE: Final = "ROCKETRIO_TLS_CA_FILE"
CONTEXT_VARIABLE: Final = "ROCKETRIO_CONTEXT"
