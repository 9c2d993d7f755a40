"""What is known about models, by profiles from several sources."""

from proxy.shell.models.calibration import MIN_SAMPLES, RATIO_STEP
from proxy.shell.models.catalogue import Catalogue, Price
from proxy.shell.models.discovery import HOW_TO_STATE_A_WINDOW, Discovery, key_headers
from proxy.shell.models.knowledge import key_of
from proxy.shell.models.learning import Learning
from proxy.shell.models.own_servers import NoAnswer, body_of
from proxy.shell.models.profiles import SMALL_BODY_BYTES, ModelResolver, entry_of, stated_by
from proxy.shell.models.tokenizer import counter_for

__all__ = [
    "HOW_TO_STATE_A_WINDOW",
    "MIN_SAMPLES",
    "RATIO_STEP",
    "SMALL_BODY_BYTES",
    "Catalogue",
    "Discovery",
    "Learning",
    "ModelResolver",
    "NoAnswer",
    "Price",
    "body_of",
    "counter_for",
    "entry_of",
    "key_headers",
    "key_of",
    "stated_by",
]
