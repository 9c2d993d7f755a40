"""Every word that is ever put before a model."""
