"""Settings: the one reader of flags, environment and YAML."""
