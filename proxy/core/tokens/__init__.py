"""How many tokens a text or an image costs."""

from proxy.core.tokens.counters import DEEPSEEK, GLM, KIMI, QWEN, ByteClassCounter, Counter, Weights
from proxy.core.tokens.images import ImageCounter, image_size, tokens_of_image, with_images_of

__all__ = [
    "DEEPSEEK",
    "GLM",
    "KIMI",
    "QWEN",
    "ByteClassCounter",
    "Counter",
    "ImageCounter",
    "Weights",
    "image_size",
    "tokens_of_image",
    "with_images_of",
]
