"""Every text that is ever put before a model."""
