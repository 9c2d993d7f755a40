"""What is known about models: profiles and their sources, lessons from refusals, token counters."""
