"""The meaning of each log event; docs/log.md is generated from it.

Rule: exactly the events that the code writes are listed here; a test compares.
"""

from __future__ import annotations

from typing import Final

EVENTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("request_done",),
        "every chat request, however it ended: sizes, edits, times, outcome; `refusal`: what the upstream refused it "
        "for (`prompt`, `auth`, `rate`, …), also in the mode `observe`; and `prefix_kept`: the share (0–1) of the "
        "conversation's previous request, as sent, with which this one begins (from 4 KB on); with "
        "`retrieval_rounds`, `usage`: the tokens of all rounds together; the client sees only the first prompt's; with "
        "several upstreams, `route`: which of them serves it, by its place in the settings (`upstreams[0]`)",
    ),
    (("messages_compressed",), "`/v1/compress` answered a gateway: sizes before and after, edits by reason"),
    (
        ("request_planned",),
        "a request was changed: sizes before and after, edits by reason, the numbers of the messages that were "
        "`changed` and `left_out`, and the `artifacts` that hold what was taken out",
    ),
    (
        ("edit",),
        "at the level debug, one for each change of each send: the `message`, by its number from 0 (to `last_message`, "
        "for neighbours left out together), `reasons`, tokens before and after, `artifacts`",
    ),
    (
        ("model_limits",),
        "the limits that hold for a model, when they are first used and whenever they differ: the window, where it "
        "comes from, and how it is known (`stated`, `learned`, `inferred`, `guessed`); the most lines, bytes and "
        "characters of a tool result, and whether `settings` or the share of the `window` set the bytes",
    ),
    (("tool_output_truncated", "artifact_saved"), "a tool result was cut; all of it is in the file of that name"),
    (("media_routed",), "an image, a sound or a file was moved or described: kind, type, bytes, route"),
    (("media_refused", "media_refusal_learned"), "media were refused and sent as text instead; what is remembered"),
    (
        ("overflow_detected", "overflow_retried", "original_retried"),
        "the upstream refused; what was sent next, with the same members as `request_planned`, and the goal that was "
        "used",
    ),
    (
        ("waiting_request_lost",),
        "a waiting request could not be written to a file, or read back, so it is not sent again: `problem`",
    ),
    (("history_healed",), "the upstream refused the history, which was repaired and sent again"),
    (
        ("limit_learned", "ratio_learned", "image_cost_learned", "tool_refusal_learned"),
        "the upstream taught something: its limits, how it counts texts and images, that it does not accept "
        "`read_artifact`; `context-proxy models --forget` erases it",
    ),
    (
        ("configured_window_corrected",),
        "a refusal printed a window smaller than the configured one; requests are fitted to the smaller one until it "
        "is refuted or forgotten",
    ),
    (("window_tried",), "a learned limit may have grown: to find out, this request is cut less and sent larger"),
    (
        ("upstream_truncated_silently", "cut_retried"),
        "the upstream counted far less than was sent; what it certainly reads whole was sent next",
    ),
    (
        ("window_too_small",),
        "a server that cuts silently has a window smaller than system text and tools; what to set is in `advice`",
    ),
    (("system_text_long",), "the system text alone takes half of the room"),
    (("artifact_store_failed",), "the store cannot be written; requests continue, uncut if they fit"),
    (("artifacts_gone",), "what was kept in a bucket is no longer there; what requests bring again is kept again"),
    (
        ("artifact_read",),
        "somebody read an artifact, or tried to; with a `round`: the model, with the tool that it was offered; with a "
        "`tool`: a client of MCP, with the tool that it called",
    ),
    (
        ("image_fetched", "image_not_fetched"),
        "with `media.fetch_remote_images`: what became of an image on the web; its host, never the whole address",
    ),
    (("artifacts_swept",), "old artifacts were deleted, or the least recently used ones above the size limit"),
    (
        ("request_refused",),
        "a client was cut off before the proxy had the head of its request (too long, too slow, not HTTP, or one "
        "connection too many), or it called by a name that is not in `server.host_names`; the reason is in `problem`",
    ),
    (
        ("wrong_admin_key",),
        "somebody asked for one of the operator's pages with another key than `server.admin_key`: the `client`'s "
        "address, and what `X-Forwarded-For` claims; never the key",
    ),
    (
        ("request_not_read", "passthrough_failed"),
        "a compression that the proxy cannot read; a request to another path without a response",
    ),
    (
        ("decisions_not_kept",),
        "the file with the latest requests is locked, broken or cannot be written: each worker shows its own until the "
        "file works again; a broken one is put aside, and one that was removed is made again",
    ),
    (
        ("learning_not_kept", "learning_not_read", "learning_not_erased"),
        "the data folder cannot be written; only what was learned is lost",
    ),
    (
        ("owner_secret_not_kept",),
        "the secret of tenants cannot be written to the data folder, and lasts as long as the process; or it cannot be "
        "read in a bucket, and until it is, nothing is kept or read there",
    ),
    (
        ("state_not_shared",),
        "replicas with another secret of tenants use the server at `state.url`, too: each group is for itself",
    ),
    (
        ("state_lost", "state_found", "state_failed"),
        "the server at `state.url` is away, or there again, or a defect of the proxy keeps it from what is there; "
        "meanwhile each replica goes by what it knows and learns, and shows the requests that it has",
    ),
    (
        ("catalogue_unavailable", "models_listed", "models_not_listed", "window_allocated"),
        "where the windows of models come from: lists, the catalogue, what a self-hosted server has allocated",
    ),
    (
        ("windows_guessed", "window_guessed"),
        "nobody states a window for this upstream: at the start, and with the first long request to a model; how to "
        "state it is in `advice`",
    ),
    (
        ("planning_failed", "reference_failed", "judging_failed", "request_failed"),
        "a defect of the proxy; the request is sent unchanged if possible",
    ),
    (("mcp_failed",), "the SDK of MCP reports a failure of its own; only its kind, as its words may quote a client"),
    (("metrics_not_shared",), "no folder for temporary files: each worker's `/metrics` reports its own figures"),
    (("listening",), "the port is open"),
    (
        ("settings_reloaded", "settings_not_reloaded"),
        "after SIGHUP or `POST /-/reload`: the outcome; `restart_needed` names what needs a restart; invalid "
        "settings change nothing, and `problem` has a line for each mistake",
    ),
)
"""(Names of events, their meaning), the most frequent ones first."""
