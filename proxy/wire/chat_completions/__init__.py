"""Chat completions: requests, messages and answers as OpenAI's API has them, and all who speak it."""
