"""Where images, audio, video or files may go."""

from proxy.core.media.measures import HIDING, SINGLE, SUMS, Measure, bytes_of_images, bytes_of_media
from proxy.core.media.placement import MAX_BYTES, MAX_IMAGE_PIXELS, Routes, modalities_in
from proxy.core.media.routing import RouteMedia

__all__ = [
    "HIDING",
    "MAX_BYTES",
    "MAX_IMAGE_PIXELS",
    "SINGLE",
    "SUMS",
    "Measure",
    "RouteMedia",
    "Routes",
    "bytes_of_images",
    "bytes_of_media",
    "modalities_in",
]
