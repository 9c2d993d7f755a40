"""What is known of models, their names and providers, and of the tools that agents have."""
