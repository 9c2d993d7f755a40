"""Settings, read in one place."""

import os

# A plugin of pydantic (https://docs.pydantic.dev/latest/concepts/plugins/) would see every value, keys included, and to
# look for some in the metadata of all installed packages takes 4 ms.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from proxy.config.settings import (
    ENV_ALIASES,
    ENV_PREFIX,
    HERE,
    IGNORES_ALL,
    ArtifactSettings,
    LogSettings,
    ModelSettings,
    ServerSettings,
    Settings,
    SettingsError,
    ToolLimits,
    ToolOutputSettings,
    load,
    user_data_dir,
)
from proxy.config.sources import meant, names_of_variables
from proxy.config.types import SECRET_BYTES, VARIABLES, Mode, StateUrl, client_keys, fits_into_quotes, missing_extra
from proxy.config.upstreams import WIRE_PATHS, RoutedUpstream, UpstreamSettings

__all__ = [
    "ENV_ALIASES",
    "ENV_PREFIX",
    "HERE",
    "IGNORES_ALL",
    "SECRET_BYTES",
    "VARIABLES",
    "WIRE_PATHS",
    "ArtifactSettings",
    "LogSettings",
    "Mode",
    "ModelSettings",
    "RoutedUpstream",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "StateUrl",
    "ToolLimits",
    "ToolOutputSettings",
    "UpstreamSettings",
    "client_keys",
    "fits_into_quotes",
    "load",
    "meant",
    "missing_extra",
    "names_of_variables",
    "user_data_dir",
]
