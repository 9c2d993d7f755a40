"""What is known of models: profiles and their sources, what refusals taught, who counts."""
