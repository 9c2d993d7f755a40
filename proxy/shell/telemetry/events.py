"""What the lines of the log say, event by event; docs/log.md is written from it.

Rule: every event that the code writes stands here, and nothing else does; a test compares.
"""

from __future__ import annotations

from typing import Final

EVENTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("request_done",),
        "every chat request, however it ended: sizes, edits, times, outcome; `refusal`: what the upstream refused it "
        "for (`prompt`, `auth`, `rate`, …), in the mode `observe`, too; and `prefix_kept`: the share (0–1) of the "
        "request before in the same conversation, as it was sent, that this one begins with (from 4 KB on); with "
        "`retrieval_rounds`, `usage`: the tokens of all rounds together, of which the client is told the first prompt",
    ),
    (("messages_compressed",), "`/v1/compress` answered a gateway: before, after, how many edits for which reason"),
    (("request_planned",), "a request was changed: before, after, how many for which reason"),
    (("tool_output_truncated", "artifact_saved"), "a tool result was cut; its whole is in the file of that name"),
    (("media_routed",), "an image, a sound or a file went elsewhere, or is described: kind, type, bytes, route"),
    (("media_refused", "media_refusal_learned"), "media were refused and went up as text; what is remembered"),
    (("overflow_detected", "overflow_retried", "original_retried"), "the upstream refused; what was sent next"),
    (
        ("limit_learned", "ratio_learned", "image_cost_learned", "tool_refusal_learned"),
        "the upstream taught something: its limits, how it counts texts and images, that it does not take "
        "`read_artifact`; `context-proxy models --forget` erases it",
    ),
    (("window_tried",), "a learned window may have grown: this request, cut less, goes up larger to find out"),
    (
        ("upstream_truncated_silently", "cut_retried"),
        "the upstream counted far less than was sent; what it is sure to read whole was sent next",
    ),
    (
        ("window_too_small",),
        "a server that cuts silently has less of a window than system text and tools take; what to set is in `advice`",
    ),
    (("system_text_long",), "the system text alone takes half of the room"),
    (("artifact_store_failed",), "the store cannot be written; requests go on, uncut where they fit"),
    (
        ("artifact_read",),
        "somebody read an artifact, or tried to; with a `round`: the model did, by the tool that it was offered",
    ),
    (
        ("image_fetched", "image_not_fetched"),
        "with `media.fetch_remote_images`: what became of an image on the web; its host, never more of its address",
    ),
    (("artifacts_swept",), "old artifacts were deleted, or the least recently used over the quota"),
    (
        ("request_refused",),
        "a client was cut off before the proxy had the head of its request: too long, too slow, not HTTP, or one "
        "connection too many; the reason is in `problem`",
    ),
    (
        ("request_not_read", "passthrough_failed"),
        "a compression that the proxy cannot read; another path that got no answer",
    ),
    (
        ("learning_not_kept", "learning_not_read", "learning_not_erased", "owner_secret_not_kept"),
        "the data folder cannot be written; nothing is lost but what was learned",
    ),
    (
        ("catalogue_unavailable", "models_listed", "models_not_listed", "window_allocated"),
        "where the windows of models come from: lists, the catalogue, what a server of your own has allocated",
    ),
    (
        ("windows_guessed", "window_guessed"),
        "nobody states a window for this upstream: at the start, and with the first long request to a model; how to "
        "state it is in `advice`",
    ),
    (
        ("planning_failed", "reference_failed", "judging_failed", "request_failed"),
        "a defect of the proxy; the request goes up as it came if it can",
    ),
    (("metrics_not_shared",), "there is no folder for temporary files: each worker's `/metrics` tells its own figures"),
    (("listening",), "the port is open"),
    (
        ("settings_reloaded", "settings_not_reloaded"),
        "after SIGHUP or `POST /-/reload`: what came of it; `restart_needed` names what could not change; wrong "
        "settings change nothing, and `problem` has a line for each mistake",
    ),
)
"""(Names of events, when they are written), the most frequent ones first."""
