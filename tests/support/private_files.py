"""Files with secrets, which no user but their owner may read."""

from pathlib import Path

from rocketrio_protocol.credentials import Credentials


def private_file(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file with this mode, and its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def account_file(path: Path, account: Credentials) -> Path:
    """Write the file of an account, as Apache's tools read it too."""
    return private_file(path, f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n")
