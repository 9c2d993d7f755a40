"""Knowledge about models, their names and providers, and about the tools that agents have."""
