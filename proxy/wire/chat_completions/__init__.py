"""Chat completions: requests, messages and responses of OpenAI's API and of all compatible ones."""
