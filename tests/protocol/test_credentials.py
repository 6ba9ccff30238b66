"""The account of a client, and the files that hold it (`credentials.py`, `private_files.py`)."""

import copy
import logging
import pickle
from pathlib import Path

import pytest
from tests.support.private_files import private_file

from rocketrio_protocol.credentials import CREDENTIALS_FILE_SIZE_MAX, Credentials
from rocketrio_protocol.errors import ConfigError

SECRET = "marker-of-a-secret"


@pytest.mark.parametrize(
    "text",
    [
        f"accessKey: someone\nsecretKey: {SECRET}\n",
        f"# tools\n---\n\naccessKey : 'someone'\nsecretKey: \"{SECRET}\" # new\n",
        f"\ufeffaccessKey: someone # he\nsecretKey: '{SECRET}'\nsecurityToken:\n",
        f"AccessKey=someone\nSecretKey={SECRET}\n",
        f"! Java\r\nAccessKey = someone\r\nSecretKey = {SECRET}\r\nSecurityToken =\r\n",
    ],
)
def test_file_in_either_form_gives_the_account(tmp_path: Path, text: str) -> None:
    assert Credentials.from_file(private_file(tmp_path / "file", text)) == Credentials(
        "someone", SECRET
    )


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("accessKey: a\nsecretKey: 12345678\n", "12345678"),
        ("accessKey: a\nsecretKey: 0123456\n", "0123456"),
        ("accessKey: a\nsecretKey: x=y:z#q\n", "x=y:z#q"),
        ("accessKey: a\nsecretKey: 'x\\n # y'\n", "x\\n # y"),
        ("AccessKey=a\nSecretKey=x=y # z\n", "x=y # z"),
        ('AccessKey=a\nSecretKey="x"\n', '"x"'),
    ],
)
def test_secret_of_a_file_is_the_text_as_it_is_written(
    tmp_path: Path, text: str, secret: str
) -> None:
    assert Credentials.from_file(private_file(tmp_path / "file", text)).secret_key == secret


def test_token_of_a_file_is_read(tmp_path: Path) -> None:
    path = private_file(tmp_path / "file", "accessKey: a\nsecretKey: b\nsecurityToken: c\n")
    assert Credentials.from_file(path) == Credentials("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no accessKey"),
        (f"secretKey: {SECRET}", "has no accessKey"),
        ("accessKey: a\nsecretKey:\n", "has no secretKey"),
        (f"accessKey: a\n{SECRET}\n", "line 2 is neither"),
        (f"accessKey: a\nsecretKeys: {SECRET}\n", "line 2 is not one of"),
        (f"accessKey: a\nsecretKey: {SECRET}\nsecretKey: {SECRET}", "line 3 gives a key a second"),
        (f'accessKey: a\nsecretKey: "{SECRET}\n', "line 2: the quotes are not closed"),
        (f'accessKey: a\nsecretKey: "{SECRET}\\n"\n', "line 2 uses an escape.*single quotes"),
        (f"accessKey: a\nsecretKey: {SECRET}\x01\n", "secret_key has"),
        (f"# {SECRET}\n" * (CREDENTIALS_FILE_SIZE_MAX // 20), "holds more than 65536 bytes"),
    ],
)
def test_wrong_file_is_refused_by_line_and_not_quoted(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        Credentials.from_file(private_file(tmp_path / "file", text))
    assert SECRET not in str(caught.value)


def test_file_that_others_may_read_is_refused_with_the_command_that_closes_it(
    tmp_path: Path,
) -> None:
    path = private_file(tmp_path / "file", f"accessKey: a\nsecretKey: {SECRET}\n", mode=0o640)
    with pytest.raises(ConfigError, match=r"open to others \(mode 0640\).*chmod 600 .*file"):
        Credentials.from_file(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Credentials.from_file(tmp_path / "none")


@pytest.mark.parametrize("secret", ["", " x", "x\n", "x\x01", None, b"x", 7])
def test_wrong_key_is_refused_and_not_shown(secret: object) -> None:
    with pytest.raises(ConfigError, match=r"secret_key (must be|has)"):
        Credentials("a", secret)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"access_key (must be|has)"):
        Credentials(secret, "a")  # type: ignore[arg-type]


def test_secret_is_in_no_text_and_no_pickle(caplog: pytest.LogCaptureFixture) -> None:
    credentials = Credentials("someone", SECRET, f"token-{SECRET}")
    logging.getLogger("test").error("%s %r", credentials, credentials)
    assert "someone" in caplog.text
    assert SECRET not in caplog.text + str(credentials) + repr([credentials])
    with pytest.raises(TypeError, match="access_key"):
        f"{credentials}"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="from_file"):
            pickle.dumps(credentials, protocol=protocol)
    with pytest.raises(TypeError):
        copy.deepcopy(credentials)
