"""Where images, audio, video and files may go."""
