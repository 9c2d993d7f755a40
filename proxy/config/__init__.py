"""Settings: the one reader of flags, environment and YAML."""

import os

# A plugin of pydantic (https://docs.pydantic.dev/latest/concepts/plugins/) would see every value, keys included, and to
# look for some in the metadata of all installed packages takes 4 ms.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
