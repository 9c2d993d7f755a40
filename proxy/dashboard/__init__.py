"""The page at `/`: three files that are served as they are, without a build step."""
