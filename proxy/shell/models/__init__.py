"""Knowledge about models: profiles and their sources, lessons from refusals, token counters."""
