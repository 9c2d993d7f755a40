"""What messages name and do not hold: images on the web, artifacts of earlier requests."""
