"""What messages refer to but do not contain: images on the web, artifacts of earlier requests."""
