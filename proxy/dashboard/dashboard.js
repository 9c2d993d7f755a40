// The page at "/": polls /decisions and shows them. Rule: whatever comes from a request is put in as text, never as
// markup; rows that are there stay the same elements, so that focus and selection survive each look.
"use strict";

const POLL_MILLISECONDS = 2000;
const ASKED = 100;
const MAX_ROWS = 300;

const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });

const rows = new Map(); // key of a decision → {decision, item, button, strip}
let filter = "all";
let paused = false;
let opened = null; // key of the decision in the detail pane
let timer = 0;
let wanted = named(location.hash.slice(1)); // a request that the address names, until it shows up

/** What an address names; nothing where somebody has written a % that begins no escape. */
function named(escaped) {
  try {
    return decodeURIComponent(escaped);
  } catch {
    return "";
  }
}

/** An element with classes, and children: elements, or texts, which stay texts. */
function element(name, classes, ...children) {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : String(child)));
  return made;
}

const keyOf = (decision) => `${decision.ended} ${decision.request_id}`;
function nameOf(request) {
  if (request.model) return request.model;
  if (isPlanned(request)) return "no model";
  return request.ended ? "not read" : "being read";
}
const isPlanned = (decision) => typeof decision.tokens_before === "number";
const isObserved = (decision) => decision.mode === "observe";
const isChanged = (decision) => Object.keys(decision.edits || {}).length > 0;

const ENDINGS = { context_length_exceeded: "does not fit", client_left: "client left", upstream_timeout: "timed out" };

function outcomeOf(decision) {
  if (decision.outcome !== "answered") {
    return ["bad", Object.hasOwn(ENDINGS, decision.outcome) ? ENDINGS[decision.outcome] : decision.outcome.replaceAll("_", " ")];
  }
  if (decision.status >= 400) return ["warn", `HTTP ${decision.status}`];
  if (decision.warning) return ["warn", decision.warning.replaceAll("_", " ")];
  return ["good", decision.attempts > 1 ? `answered, ${decision.attempts} sends` : "answered"];
}

function isShown(decision) {
  if (filter === "changed") return isChanged(decision);
  if (filter === "troubled") return outcomeOf(decision)[0] !== "good" || decision.attempts > 1;
  return true;
}

/** Tokens that were kept, cut and left out; what is no message (tools, mostly) is kept. */
function sharesOf(decision) {
  const { cut, left_out: gone } = decision.message_tokens;
  return { kept: Math.max(0, decision.tokens_before - cut - gone), cut, gone };
}

function inWords({ kept, cut, gone }) {
  return `${whole.format(kept)} tokens kept, ${whole.format(cut)} cut, ${whole.format(gone)} left out`;
}

/** A bar of `shares`, as long as its part of `scale`; with a line where the room ends. */
function stripOf(shares, scale, { room = null, big = false } = {}) {
  const total = shares.kept + shares.cut + shares.gone;
  const strip = element("span", big ? "strip big" : "strip");
  strip.setAttribute("role", "img");
  strip.setAttribute("aria-label", inWords(shares));
  strip.style.display = "block";
  const fill = element("span", "fill");
  fill.style.width = `${(100 * total) / Math.max(1, scale)}%`;
  for (const kind of ["kept", "cut", "gone"]) {
    if (!shares[kind]) continue;
    const part = element("i", kind);
    part.style.flex = `${shares[kind]} 0 0`;
    part.style.minWidth = "2px";
    fill.append(part);
  }
  strip.append(fill);
  if (room !== null && room <= scale) {
    const mark = element("span", "mark-room");
    mark.style.left = `calc(${(100 * room) / scale}% - 1px)`;
    strip.append(mark);
  }
  return strip;
}

function timeOf(decision) {
  return new Date(decision.ended).toLocaleTimeString([], { hour12: false });
}

function sizesOf(decision) {
  const sizes = element("span", "tokens");
  if (!isPlanned(decision)) return sizes;
  if (decision.tokens_before !== decision.tokens_after) {
    sizes.append(element("span", "was", `${short.format(decision.tokens_before)} → `));
  }
  sizes.append(short.format(decision.tokens_after));
  sizes.title = `${whole.format(decision.tokens_before)} tokens came, ${whole.format(decision.tokens_after)} after the plan`;
  return sizes;
}

function rowOf(decision) {
  const [grade, words] = outcomeOf(decision);
  const button = element("button", isObserved(decision) ? "row observed" : "row",
    element("span", "time", timeOf(decision)),
    element("span", "model", nameOf(decision)),
    element("span", "strip"),
    sizesOf(decision),
    element("span", `outcome ${grade}`, isObserved(decision) ? "observed" : words));
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-controls", "detail");
  const key = keyOf(decision);
  button.addEventListener("click", () => (opened === key ? close() : open(key)));
  return { decision, item: element("li", "", button), button };
}

/** One scale for all bars, so that a conversation is seen to grow. */
function draw() {
  const shown = [...rows.values()].filter((row) => isShown(row.decision));
  const scale = Math.max(1, ...shown.map(({ decision }) => (isPlanned(decision) ? decision.tokens_before : 0)));
  for (const row of rows.values()) {
    row.item.hidden = !isShown(row.decision);
    if (row.item.hidden || !isPlanned(row.decision) || row.scale === scale) continue;
    row.scale = scale;
    const strip = stripOf(sharesOf(row.decision), scale, { room: row.decision.room_tokens });
    row.button.querySelector(".strip").replaceWith(strip);
  }
  byId("empty").hidden = rows.size > 0 || !byId("running").hidden;
}

function take(decisions) {
  for (const decision of [...decisions].reverse()) {
    const key = keyOf(decision);
    if (rows.has(key)) continue;
    const row = rowOf(decision);
    rows.set(key, row);
    byId("requests").prepend(row.item);
  }
  for (const [key, row] of rows) {
    if (rows.size <= MAX_ROWS) break;
    if (key === opened) continue;
    row.item.remove();
    rows.delete(key);
  }
}

/** Nothing in these is to be pressed, so they are made anew at each look. */
function showRunning(running) {
  byId("running").hidden = running.length === 0;
  byId("running").replaceChildren(...running.map((request) => element("li", "", element("div", "row",
    element("span", "time", `${whole.format(Math.round(request.seconds))} s`),
    element("span", "model", nameOf(request)),
    sizesOf(request),
    element("span", "outcome", request.attempts > 1 ? "second send" : "under way")))));
}

function showTotals(totals, worker) {
  const set = (name, value, more) => {
    byId(`total-${name}`).textContent = value;
    byId(`more-${name}`).textContent = more;
  };
  set("requests", whole.format(totals.requests), totals.running ? `${whole.format(totals.running)} under way` : "none under way");
  set("saved", short.format(totals.tokens_saved),
    totals.tokens_before ? `${percent.format(totals.tokens_saved / totals.tokens_before)} of what came` : "");
  set("overflows", whole.format(totals.overflows_survived),
    totals.overflows ? `of ${whole.format(totals.overflows)} the upstream refused` : "none refused");
  set("prefix", totals.prefix_kept === null ? "–" : percent.format(totals.prefix_kept),
    totals.prefix_kept === null ? "from the second request on" : "of the request before, on average");
  byId("worker").textContent = worker.workers > 1
    ? `Worker ${worker.pid}, one of ${worker.workers}: each shows the requests that it has served itself.` : "";
}

function say(state, words) {
  const place = byId("state");
  if (place.textContent === words) return; // a screen reader speaks up at each change
  place.dataset.state = state;
  place.textContent = words;
}

async function ask(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" }, cache: "no-store" });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error.message);
  return found;
}

async function look() {
  clearTimeout(timer);
  try {
    const found = await ask(`decisions?limit=${ASKED}`);
    showRunning(found.running);
    take(found.decisions);
    draw();
    showTotals(found.totals, found.worker);
    openWanted();
    say(paused ? "wait" : "live", paused ? "paused" : "live");
  } catch (error) {
    say("lost", error instanceof TypeError ? "the proxy does not answer; trying again" : error.message);
  }
  if (!paused && !document.hidden) timer = setTimeout(look, POLL_MILLISECONDS);
}

// Detail -----------------------------------------------------------------------------------------------------------

function openWanted() {
  const row = wanted && [...rows.values()].reverse().find(({ decision }) => decision.request_id === wanted);
  if (row) open(keyOf(row.decision));
}

async function open(key) {
  const row = rows.get(key);
  wanted = "";
  history.replaceState(null, "", `#${encodeURIComponent(row.decision.request_id)}`);
  if (opened !== null) rows.get(opened)?.button.setAttribute("aria-expanded", "false");
  opened = key;
  row.button.setAttribute("aria-expanded", "true");
  byId("panes").classList.add("open");
  const pane = byId("detail");
  pane.hidden = false;
  pane.replaceChildren(...detailOf(row.decision));
  pane.scrollTop = 0;
  pane.querySelector("h2").focus({ preventScroll: false });
  const messages = pane.querySelector(".messages");
  try {
    const found = await ask(`decisions/${encodeURIComponent(row.decision.request_id)}`);
    if (opened !== key) return;
    if (found.ended !== row.decision.ended) throw new Error("A newer request has the same id; this one is out of reach.");
    messages.replaceChildren(...blocksOf(found.blocks));
  } catch (error) {
    messages.replaceChildren(element("p", "problem", error.message));
  }
}

function close() {
  if (opened === null) return;
  const button = rows.get(opened)?.button;
  opened = null;
  history.replaceState(null, "", location.pathname + location.search);
  byId("detail").hidden = true;
  byId("panes").classList.remove("open");
  button?.setAttribute("aria-expanded", "false");
  button?.focus();
}

function detailOf(decision) {
  const title = element("h2", "", nameOf(decision), element("span", "id mono", decision.request_id));
  title.id = "detail-title";
  title.tabIndex = -1;
  const shut = element("button", "close", "Close");
  shut.type = "button";
  shut.addEventListener("click", close);
  const parts = [element("div", "detail-head", title, shut)];
  if (isPlanned(decision)) {
    const scale = Math.max(decision.tokens_before, decision.room_tokens);
    parts.push(stripOf(sharesOf(decision), scale, { room: decision.room_tokens, big: true }));
  }
  if (decision.problem) parts.push(element("p", "problem", decision.problem));
  if (decision.advice) parts.push(element("p", "problem", `This is more than the server has a window for, and it cuts without a word: ${decision.advice}.`));
  parts.push(factsOf(decision));
  if (isChanged(decision)) {
    parts.push(element("h3", "", "Reasons"), element("p", "chips", ...Object.entries(decision.edits).map(
      ([reason, count]) => element("span", "chip", `${reason} × ${whole.format(count)}`))));
  }
  parts.push(element("h3", "", "Messages"), element("div", "messages"));
  return parts;
}

function factsOf(decision) {
  const [grade, words] = outcomeOf(decision);
  const facts = element("dl", "facts");
  const fact = (name, value, classes = "") => {
    if (value === undefined || value === null || value === "") return;
    facts.append(element("div", "", element("dt", "", name), element("dd", classes, value)));
  };
  fact("Outcome", words, grade);
  if (isPlanned(decision)) {
    fact("Came", `${whole.format(decision.tokens_before)} tokens`);
    fact(isObserved(decision) ? "Would be sent" : "After the plan", `${whole.format(decision.tokens_after)} tokens`);
    const room = decision.room_tokens;
    fact("Room for the prompt", room === null ? "unknown: the window is a guess" : `${whole.format(room)} tokens`);
    fact("Window", `${whole.format(decision.window_tokens)} tokens`);
  }
  fact("Prefix kept", decision.prefix_kept === undefined ? undefined : percent.format(decision.prefix_kept));
  if (decision.attempts > 1) fact("Second send", decision.rung.replaceAll("_", " "));
  fact("Own time", decision.own_ms === undefined ? undefined : `${decision.own_ms} ms`);
  fact("First byte", decision.first_byte_ms === undefined ? undefined : `${whole.format(decision.first_byte_ms)} ms`);
  fact("In all", `${whole.format(decision.total_ms)} ms`);
  fact("Counted by", decision.counted_by);
  return facts;
}

/** Neighbours that nothing was done to, or that are left out into the same artifact, share one line. */
function* runsOf(blocks) {
  let run = [];
  const mark = (block) => (block.tokens_after === 0 || block.reasons.length === 0
    ? JSON.stringify([block.reasons, block.artifacts]) : `alone ${block.message}`);
  for (const block of blocks) {
    if (run.length && mark(run[0]) !== mark(block)) {
      yield run;
      run = [];
    }
    run.push(block);
  }
  if (run.length) yield run;
}

function blocksOf(blocks) {
  if (!blocks.length) return [element("p", "chips", "This request was passed on unread.")];
  const runs = [...runsOf(blocks)];
  const scale = Math.max(1, ...runs.map(sizeOf)); // one for all bars
  return runs.map((run) => (run.length > 2 ? foldedOf(run, scale) : element("ol", "",
    ...run.map((block) => blockOf(block, scale)))));
}

/** Of a run: what came, or what is sent where a note has made that more. */
function sizeOf(run) {
  return run.reduce((sum, block) => sum + Math.max(block.tokens_before, block.tokens_after), 0);
}

/** A run as one line that opens; what is in it is made when it is opened. */
function foldedOf(run, scale) {
  const tokens = run.reduce((sum, block) => sum + block.tokens_before, 0);
  const gone = run[0].tokens_after === 0;
  const summary = element("summary", "", element("b", "", `${whole.format(run.length)} messages `),
    `${gone ? "left out" : "as they came"} · ${whole.format(tokens)} tokens · ${run[0].message}–${run.at(-1).message}`);
  const folded = element("details", "", summary);
  const bar = stripOf({ kept: gone ? 0 : tokens, cut: 0, gone: gone ? tokens : 0 }, scale);
  bar.style.height = "6px";
  bar.style.marginTop = "4px";
  summary.append(bar);
  if (gone) summary.append(...run[0].artifacts.map((name) => element("code", "", name)));
  folded.addEventListener("toggle", () => {
    if (folded.open && !folded.querySelector("ol")) folded.append(element("ol", "", ...run.map((block) => blockOf(block, scale))));
  });
  return folded;
}

function blockOf(block, scale) {
  const gone = block.tokens_after === 0;
  const kept = Math.min(block.tokens_before, block.tokens_after);
  const shares = { kept, cut: gone ? 0 : block.tokens_before - kept, gone: gone ? block.tokens_before : 0 };
  const changed = block.tokens_before !== block.tokens_after;
  const size = element("span", "size", changed ? `${whole.format(block.tokens_before)} → ` : "",
    element("b", "", gone ? "left out" : whole.format(block.tokens_after)));
  const item = element("li", "block",
    element("span", "at", block.message),
    element("span", "who", block.role || "no role", element("span", "tool", block.tool ? ` ${block.tool}` : "")),
    size, stripOf(shares, scale));
  if (block.reasons.length) {
    item.append(element("span", "why", ...block.reasons.map((reason) => element("span", "chip", reason)),
      ...block.artifacts.map((name) => element("code", "", name))));
  }
  return item;
}

// Keys and buttons ---------------------------------------------------------------------------------------------------

byId("requests").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const buttons = [...byId("requests").querySelectorAll("li:not([hidden]) .row")];
  const next = buttons[buttons.indexOf(document.activeElement) + step];
  if (next) next.focus();
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
});
byId("filters").addEventListener("click", (event) => {
  const chosen = event.target.dataset.filter;
  if (!chosen) return;
  filter = chosen;
  for (const button of byId("filters").children) button.setAttribute("aria-pressed", String(button.dataset.filter === filter));
  draw();
});
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
  look();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) look();
});
byId("base-url").textContent = new URL("v1", location.href.replace(/[^/]*$/, "")).href;
look();
