"""Where images, audio, video and files may go."""

from proxy.core.media.placement import MAX_BYTES, MAX_IMAGE_PIXELS, Routes, modalities_in
from proxy.core.media.routing import RouteMedia

__all__ = [
    "MAX_BYTES",
    "MAX_IMAGE_PIXELS",
    "RouteMedia",
    "Routes",
    "modalities_in",
]
