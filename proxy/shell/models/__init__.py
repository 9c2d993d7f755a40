"""Knowledge about models: profiles and their sources, lessons from refusals, token counters."""

from proxy.shell.models.calibration import EVERY, LARGER, MIN_SAMPLES, PROVES, RATIO_STEP, Trials
from proxy.shell.models.catalogue import Catalogue, Price, Prices
from proxy.shell.models.discovery import HOW_TO_STATE_A_WINDOW, Discovery, key_headers
from proxy.shell.models.knowledge import key_of
from proxy.shell.models.learning import Learning
from proxy.shell.models.profiles import SMALL_BODY_BYTES, ModelResolver, entry_of, stated_by
from proxy.shell.models.tokenizer import counter_for

__all__ = [
    "EVERY",
    "HOW_TO_STATE_A_WINDOW",
    "LARGER",
    "MIN_SAMPLES",
    "PROVES",
    "RATIO_STEP",
    "SMALL_BODY_BYTES",
    "Catalogue",
    "Discovery",
    "Learning",
    "ModelResolver",
    "Price",
    "Prices",
    "Trials",
    "counter_for",
    "entry_of",
    "key_headers",
    "key_of",
    "stated_by",
]
