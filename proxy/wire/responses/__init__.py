"""OpenAI's Responses API as a wire."""
