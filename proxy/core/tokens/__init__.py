"""How many tokens a text or an image costs."""
