"""Types of single settings: addresses, folders, keys, names. Each says what is allowed when it refuses a value. And
what every section has in common, and where clients on this machine have their keys.

Rule: an impossible text is refused with a sentence that follows the name of its key; a text that may hold a password is
never quoted.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr, model_validator

from proxy.core.models import Modality

STORE_SCHEMES: Final = ("s3", "gs", "az", "file", "memory")
_STORE_REST: Final = re.compile(r"(?:/?[A-Za-z0-9._~ -]+)*/?")
"""No user, no password, no query: those come from the environment."""
_ENDPOINT: Final = re.compile(r"(/chat/completions|/completions|/responses|/messages|/v1/models)/?$")
"""Suffixes that clients add to a base URL themselves."""
_VALKEY: Final = re.compile(r"^valkey(s?)://")
_DATABASE: Final = re.compile(r"(?:/[0-9]{0,4})?")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_REFERENCE: Final = re.compile(r"os\.environ/|env[:/]|\$|%\w+%|\{\{|<")
"""How other tools name a variable or a place to fill in; no provider's keys begin so."""
_PLAIN_URL: Final = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(?:/[A-Za-z0-9._~/-]*)?")
"""It is shown to models."""


def missing_extra(name: str) -> str:
    """What a setting or a command says whose packages are missing; how to add them depends on the installation."""
    return f"needs the extra `{name}`, which is not installed: docs/install.md#extras says how"


def is_installed(module: str) -> bool:
    """Whether a module, or one inside a package, can be imported."""
    with contextlib.suppress(ModuleNotFoundError):
        return find_spec(module) is not None
    return False


def must(words: str, is_allowed: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Return a check that refuses other values with this sentence."""

    def checked(value: Any) -> Any:
        if not is_allowed(value):
            raise ValueError(words)
        return value

    return checked


def needs(extra: str, module: str) -> AfterValidator:
    """A missing extra should be noticed at the start, where the setting is not false."""
    return AfterValidator(must(missing_extra(extra), lambda value: value is False or is_installed(module)))


def _at_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError("must name a home folder that is known") from None


def _base_url(url: str) -> str:
    """`http://host:8000` means its `/v1`, where every OpenAI-compatible server answers; a given path stays. Blanks
    around it come from copying."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        plain = parts.port != 0 and parts.hostname and url.isprintable() and " " not in url
    except ValueError:  # an impossible port or address; the error's text may show part of a password
        plain = False
    if not plain or parts.scheme not in ("http", "https"):
        raise ValueError("must be a URL such as https://api.openai.com/v1")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("must have no query, no fragment, no user and no password; keys go into upstream.api_key")
    if endpoint := _ENDPOINT.search(parts.path):
        raise ValueError(f"must be the base URL, without {endpoint[1]}")
    return url.rstrip("/") if parts.path.strip("/") else url.rstrip("/") + "/v1"


def _store_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme not in STORE_SCHEMES or not _STORE_REST.fullmatch(rest) or (scheme == "file") != rest.startswith("/"):
        raise ValueError("must be s3://bucket/prefix, gs://bucket, az://container/prefix, file:///folder or memory://")
    if not rest and scheme != "memory":
        raise ValueError("must name a bucket or a folder")
    return url


def _state_url(url: SecretStr) -> SecretStr:
    """`valkey://` means the same as `redis://`. A mistake is not quoted: there may be a password in it."""
    address = _VALKEY.sub(lambda found: "rediss://" if found[1] else "redis://", url.get_secret_value().strip())
    try:
        parts = urlsplit(address)
        is_plain = (
            parts.port != 0 and parts.hostname and not parts.query and not parts.fragment and address.isprintable()
        )
    except ValueError:
        is_plain = False
    if not is_plain or parts.scheme not in ("redis", "rediss") or not _DATABASE.fullmatch(parts.path):
        raise ValueError("must be a URL such as redis://host:6379/0, or rediss:// with TLS")
    return SecretStr(address)


def fits_into_quotes(path: str) -> bool:
    """Whether a notice can put the path into a shell command, between apostrophes."""
    return path.isprintable() and "'" not in path


_named: Final = must("must be a path; `.` is the current folder", lambda path: path != "")
Folder = Annotated[Path, BeforeValidator(_named), AfterValidator(_at_home)]
"""An empty text, as from an unset shell variable, would mean the current folder; a `~` means the user's home, as no
shell expands one in a file."""


def _itself(key: SecretStr) -> SecretStr:
    """Files and Kubernetes secrets often end with a newline, which is not part of the key."""
    text = key.get_secret_value().strip()
    if _REFERENCE.match(text):
        raise ValueError(
            "must be the key itself; variables are not expanded here. Set the environment variable of this setting, or "
            "use the setting of this name that ends in _file for a file with the key"
        )
    return SecretStr(text)


Key = Annotated[SecretStr, AfterValidator(_itself)]


SECRET_BYTES: Final = 32


Secret = Annotated[
    Key,
    AfterValidator(
        must(
            "must be 64 hexadecimal digits, as `openssl rand -hex 32` prints them",
            lambda secret: re.fullmatch(r"[0-9a-fA-F]{64}", secret.get_secret_value()),
        )
    ),
]
"""SECRET_BYTES that key hashes."""
BaseUrl = Annotated[str, AfterValidator(_base_url)]
StoreUrl = Annotated[str, AfterValidator(_store_url)]
StateUrl = Annotated[SecretStr, AfterValidator(_state_url), needs("redis", "redis")]
AgentPath = Annotated[
    str,
    AfterValidator(
        must(
            "must be an absolute path, without quotes and control characters",
            lambda path: fits_into_quotes(path) and (path.startswith("/") or path[1:3] in (":\\", ":/")),
        )
    ),
]
PublicUrl = Annotated[
    str,
    AfterValidator(
        must("must be a URL such as https://proxy.example, without query, user and password", _PLAIN_URL.fullmatch)
    ),
    AfterValidator(lambda url: url.rstrip("/").removesuffix("/v1")),
]
HostName = Annotated[
    str,
    AfterValidator(must("must be a name such as proxy.example, without scheme, port and path", _HOST_NAME.fullmatch)),
    AfterValidator(str.lower),
]
SentKey = Annotated[
    Key,
    AfterValidator(
        must(
            "must be visible ASCII characters without spaces, as it goes into a header",
            lambda key: re.fullmatch("[!-~]+", key.get_secret_value()),
        )
    ),
]
"""A key that goes into a header."""


MAX_KEY_BYTES: Final = 16 * 1024
"""Limit of a key file; a larger file is something else."""


def _readable(path: Path) -> Path:
    try:
        key_in(path)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise ValueError("must be a file with a key in it, and nothing else") from None
    return path


def key_in(path: Path) -> str:
    """The key in a file. Raises OSError, and ValueError if the content is not a key."""
    with path.open("rb") as file:
        content = file.read(MAX_KEY_BYTES + 1)
    key = content.decode("ascii").strip()
    if not key or len(content) > MAX_KEY_BYTES or not key.isprintable():
        raise ValueError
    return key


KeyFile = Annotated[Path, BeforeValidator(_named), AfterValidator(_readable)]
"""A file that holds a key and nothing else, as Docker and Kubernetes mount secrets; its path is not secret."""


def _max_chars(given: int) -> int:
    """0 or less: 4000; 1 to 999: 1000, as less would be useless; else as given."""
    return 4_000 if given <= 0 else max(1_000, given)


MaxChars = Annotated[int, AfterValidator(_max_chars)]
Mode = Annotated[
    Literal["on", "observe", "off"],
    BeforeValidator(lambda value: ("off", "on")[value] if isinstance(value, bool) else value),
]
"""YAML reads an unquoted `on` as true."""
History = Annotated[Literal["heal", "off"], BeforeValidator(lambda value: "off" if value is False else value)]
"""YAML reads an unquoted `off` as false."""
Tokenizer = Literal["o200k_base", "cl100k_base", "bytes"]
"""The vocabularies that are installed with the proxy, and the estimate by bytes."""
Modalities = Annotated[frozenset[Modality], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class Section(BaseModel):
    """Unknown keys are mistakes, and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _fill_keys(cls, given: Any) -> Any:
        """Take each key that is not set from the file named for it; the file's own field reports what is wrong with
        it."""
        for name in cls.model_fields if isinstance(given, dict) else ():
            file = f"{name}_file"
            if file in cls.model_fields and given.get(name) is None:
                with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
                    given = {**given, name: key_in(Path(given[file]))}
        return given


VARIABLES: Final[Mapping[str, tuple[bytes, str]]] = {
    "OPENAI_API_KEY": (b"authorization", "Bearer {}"),
    "ANTHROPIC_API_KEY": (b"x-api-key", "{}"),
    "ANTHROPIC_AUTH_TOKEN": (b"authorization", "Bearer {}"),
    "AZURE_OPENAI_API_KEY": (b"api-key", "{}"),
}
"""Variables of the OpenAI and Anthropic SDKs: the header that carries each, and how."""


def client_keys(environment: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers of these clients, one for each variable that is set.

    >>> client_keys({"OPENAI_API_KEY": "sk-a", "ANTHROPIC_API_KEY": "", "HOME": "/"})
    [(b'authorization', b'Bearer sk-a')]
    """
    return [
        (name, form.format(environment[variable]).encode())
        for variable, (name, form) in VARIABLES.items()
        if environment.get(variable)
    ]
