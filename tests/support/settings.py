"""Settings that are wrong, and what is said of them."""

from __future__ import annotations

import pytest

from proxy.config import SettingsError, load


def mistakes(config_file=None, flags=None):
    with pytest.raises(SettingsError) as caught:
        load(config_file, flags)
    return str(caught.value).splitlines()
