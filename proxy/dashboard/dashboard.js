// The page at "/": asks /overview, /decisions and /conversations, and listens to /events. Rule: whatever comes from a
// request is put in as text, never as markup; rows that are there stay the same elements, so that focus and selection
// survive each change.
"use strict";

const PAGE = 50;
const MAX_ROWS = 1000;
const OVERVIEW_MILLISECONDS = 10_000;
const POLL_MILLISECONDS = 3000; // where nothing can be listened to
const ARTIFACT_LINES = 200;

const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });
const dollars = new Intl.NumberFormat("en", { style: "currency", currency: "USD" });
const cents = new Intl.NumberFormat("en", { style: "currency", currency: "USD", maximumSignificantDigits: 2, minimumSignificantDigits: 1 });
const money = { format: (amount) => (amount >= 1 || amount === 0 ? dollars : cents).format(amount) };

const rows = new Map(); // key of a decision → {decision, item, button}
const runningRows = new Map(); // request id → {item, button}
const FILTERS = ["show", "q", "conversation", "model", "client", "status", "upstream", "since"];
const CLEAR = { show: "all", q: "", conversation: "", model: "", client: "", status: "", upstream: "", since: "", direct: "" };
const selected = { view: "requests", ...CLEAR };
const AGENTS = ["claude", "codex", "opencode", "crush", "qwen", "aider", "goose", "copilot"];
let period = ""; // hours; empty until somebody chooses: as the data asks
let hoursShown = ""; // those of the figures
let paused = false;
let opened = null; // what the detail pane shows: {key, id}
let events = null;
let timer = 0;
let overviewTimer = 0;
let wanted = ""; // a request that the address names, until it is opened
let agentKey = null; // for artifacts, as [header, value]; lives as long as the page

let reasonWords = {}; // what is done for a reason: [once, # times]; comes with the decisions
let causeWords = {}; // why there was another send

function reasonInWords(reason, count) {
  if (!Object.hasOwn(reasonWords, reason)) return `${reason.replaceAll("_", " ")} × ${whole.format(count)}`;
  return reasonWords[reason][count === 1 ? 0 : 1].replace("#", whole.format(count));
}

const counted = (number, noun) => `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;

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

function outcomeOf(decision) {
  if (decision.outcome === "running") return ["", stateOf(decision)];
  if (decision.outcome !== "answered") {
    const words = decision.outcome.replaceAll("_", " ");
    const hasStatus = ["refused", "upstream_error"].includes(decision.outcome) && decision.status >= 400;
    return [["refused", "client_left"].includes(decision.outcome) ? "warn" : "bad", hasStatus ? `${words}, ${decision.status}` : words];
  }
  if (decision.warning) return ["warn", decision.warning.replaceAll("_", " ")];
  return ["good", decision.attempts > 1 ? `answered, ${decision.attempts} sends` : "answered"];
}

/** What a request that is under way is doing. */
function stateOf({ upstream, status, stream, attempts, retrieval_rounds: rounds }) {
  if (!upstream) return "being read";
  if (status >= 200 && status < 300) return stream ? "streaming" : "receiving";
  if (rounds) return "reading what was kept";
  return attempts > 1 ? "second send" : "waiting";
}

/** Tokens that were kept, cut and left out; what is no message (tools, mostly) is kept. */
function sharesOf(decision) {
  const { tokens_cut: cut = 0, tokens_left_out: gone = 0 } = decision;
  return { kept: Math.max(0, decision.tokens_before - cut - gone), cut, gone };
}

function inWords({ kept, cut, gone }) {
  return `${whole.format(kept)} tokens kept, ${whole.format(cut)} cut, ${whole.format(gone)} left out`;
}

const BUDGET_AT = 0.5;
const MOST_BUDGETS = 32;
const UNKNOWN_BUDGET = 128_000;
const budgetOf = (request) => request.room_tokens ?? request.window_tokens ?? UNKNOWN_BUDGET;

/** Where a share of the prompt budget stands on every bar of this page, from 0 to 1: linear up to the budget, logarithmic
 * above it. */
function scaled(share) {
  if (share <= 1) return BUDGET_AT * Math.max(0, share);
  return Math.min(1, BUDGET_AT + ((1 - BUDGET_AT) * Math.log(share)) / Math.log(MOST_BUDGETS));
}

/** A bar of `shares`, each of which ends where `place` says, in percent; `mark`: where the budget ends. */
function stripOf(shares, place, { mark = null, big = false } = {}) {
  const strip = element("span", big ? "strip big" : "strip");
  strip.setAttribute("role", "img");
  strip.setAttribute("aria-label", inWords(shares));
  let [tokens, end] = [0, 0];
  for (const kind of ["kept", "cut", "gone"]) {
    if (!shares[kind]) continue;
    tokens += shares[kind];
    const part = element("i", kind);
    part.style.left = `${end}%`;
    part.style.width = `max(2px, ${place(tokens) - end}% - 1px)`;
    end = place(tokens);
    strip.append(part);
  }
  if (mark !== null) {
    const line = element("span", "mark-room");
    line.style.left = `${mark}%`;
    strip.append(line);
  }
  return strip;
}

function stripOfRequest(decision, big = false) {
  const budget = budgetOf(decision);
  return stripOf(sharesOf(decision), (tokens) => 100 * scaled(tokens / budget), { big, mark: decision.room_tokens == null ? null : 100 * BUDGET_AT });
}

const clock = new Intl.DateTimeFormat([], { timeStyle: "medium" });
const dayAndClock = new Intl.DateTimeFormat([], { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
const precise = new Intl.DateTimeFormat([], { dateStyle: "full", timeStyle: "long" });

function timeOf(decision) {
  const ended = new Date(decision.ended);
  const isToday = ended.toDateString() === new Date().toDateString();
  const time = element("span", "time", (isToday ? clock : dayAndClock).format(ended));
  time.title = precise.format(ended);
  return time;
}

function sizesOf(decision) {
  const sizes = element("span", "tokens");
  if (!isPlanned(decision)) return sizes;
  if (decision.tokens_before !== decision.tokens_after) {
    sizes.append(element("span", "was", `${short.format(decision.tokens_before)} → `));
  }
  sizes.append(short.format(decision.tokens_after));
  sizes.title = `${counted(decision.tokens_before, "token")} received, ${whole.format(decision.tokens_after)} sent`;
  return sizes;
}

/** How long it took, and how much the model wrote. */
function speedOf(decision) {
  const facts = [inTime(decision.total_ms)];
  if (decision.reply_tokens) facts.push(`${short.format(decision.reply_tokens)} out`);
  const speed = element("span", "speed dim", facts.join(" · "));
  const waits = [`total ${inTime(decision.total_ms)}`];
  if (decision.first_byte_ms !== undefined) waits.push(`first byte ${inTime(decision.first_byte_ms)}`);
  if (decision.own_ms !== undefined) waits.push(`proxy ${inTime(decision.own_ms)}`);
  if (decision.reply_tokens) waits.push(`reply of ${counted(decision.reply_tokens, "token")}`);
  speed.title = waits.join(", ");
  return speed;
}

function rowOf(decision) {
  const [grade, words] = outcomeOf(decision);
  const button = element("button", isObserved(decision) ? "row observed" : "row",
    timeOf(decision),
    element("span", "who", element("span", "model", nameOf(decision)), element("span", "client dim", decision.client)),
    isPlanned(decision) ? stripOfRequest(decision) : element("span", "strip"),
    sizesOf(decision),
    speedOf(decision),
    element("span", `outcome ${grade}`, isObserved(decision) && grade === "good" ? "observed" : words));
  button.setAttribute("aria-expanded", "false");
  button.setAttribute("aria-controls", "detail");
  const key = keyOf(decision);
  button.addEventListener("click", () => (opened?.key === key ? close() : open(key, decision, button)));
  return { decision, item: element("li", "", button), button };
}

const NOTHING = {
  changed: "No request had to be changed.", cured: "No refusal had to be cured.", troubled: "Every request was answered.",
  warned: "No request came with a warning.", guessed: "No request comes near a guessed window.",
};

function sayIfEmpty() {
  const nothing = rows.size === 0 && runningRows.size === 0;
  byId("empty").hidden = !nothing || isNarrowed();
  byId("none").hidden = !nothing || !isNarrowed();
  byId("scale").hidden = nothing;
  const isOnly = FILTERS.every((name) => name === "show" || !selected[name]);
  byId("none").textContent = selected.q ? "No request has these words." : isOnly && NOTHING[selected.show] ? NOTHING[selected.show]
    : isFiltered() ? "No request is like that." : "No request in this time.";
}

const isFiltered = () => FILTERS.some((name) => selected[name] !== "" && selected[name] !== "all");
const isNarrowed = () => period !== "" || isFiltered();

/** Put decisions in: new ones above, or older ones below. */
function take(decisions, { below = false } = {}) {
  for (const decision of below ? decisions : [...decisions].reverse()) {
    const key = keyOf(decision);
    if (rows.has(key)) continue;
    const row = rowOf(decision);
    rows.set(key, row);
    if (below) byId("requests").append(row.item);
    else byId("requests").prepend(row.item);
    if (opened?.key === key) {
      opened.button = row.button;
      row.button.setAttribute("aria-expanded", "true");
    }
  }
  while (rows.size > MAX_ROWS) {
    const last = byId("requests").lastElementChild;
    for (const [key, row] of rows) if (row.item === last) rows.delete(key);
    last.remove();
  }
}

function showRunning(running) {
  const ids = new Set(running.map((request) => request.request_id));
  for (const [id, row] of runningRows) {
    if (ids.has(id)) continue;
    row.item.remove();
    runningRows.delete(id);
  }
  for (const request of running) {
    const parts = [
      element("span", "time", `${whole.format(Math.round(request.total_ms / 1000))} s`),
      element("span", "who", element("span", "model", nameOf(request)), element("span", "client dim", request.client)),
      isPlanned(request) ? stripOfRequest(request) : element("span", "strip"),
      sizesOf(request),
      element("span", "outcome", stateOf(request)),
    ];
    let row = runningRows.get(request.request_id);
    if (row === undefined) {
      const button = element("button", "row");
      button.addEventListener("click", () => openById(request.request_id, button));
      row = { button, item: element("li", "", button) };
      runningRows.set(request.request_id, row);
      byId("running").append(row.item);
    }
    row.button.replaceChildren(...parts);
  }
  byId("running").hidden = runningRows.size === 0 || isFiltered();
  byId("more-requests").dataset.running = runningRows.size ? `${whole.format(runningRows.size)} under way` : "";
  showRequestsBeside();
}

function showRequestsBeside() {
  const { running, unanswered, requests } = byId("more-requests").dataset;
  const beside = running ? [running] : [];
  if (Number(unanswered)) beside.push(linkTo({ show: "troubled" }, `${whole.format(unanswered)} not answered`));
  else if (Number(requests)) beside.push("all answered");
  byId("more-requests").replaceChildren(...beside.flatMap((one, at) => (at ? [" · ", one] : [one])));
}

/** A link to requests of a kind, by the address of this page. */
function linkTo(filters, ...children) {
  const link = element("a", "", ...children);
  link.href = `#?${new URLSearchParams(filters)}`;
  return link;
}

// Overview ----------------------------------------------------------------------------------------------------------

function showOverview(found) {
  const { totals, proxy } = found;
  const set = (name, value) => { byId(`total-${name}`).textContent = value; };
  /** A figure that nobody reported is not shown. */
  const setIf = (name, isThere, value) => {
    byId(`total-${name}`).parentElement.hidden = !isThere;
    if (isThere) set(name, value());
  };
  document.body.classList.toggle("fresh", found.kept_since === null);
  hoursShown = byId("hours").value = String(found.hours);
  byId("about").title = `Requests of this replica only; its log: ${proxy.log}`;
  byId("about").textContent = `${proxy.replica} · ${proxy.version} · up ${inTime(proxy.seconds * 1000)}${proxy.mode === "on" ? "" : ` · mode: ${proxy.mode}`}`;
  set("requests", whole.format(totals.requests));
  Object.assign(byId("more-requests").dataset, { unanswered: totals.unanswered, requests: totals.requests });
  showRequestsBeside();
  set("fitted", whole.format(totals.fitted));
  set("saved", short.format(totals.tokens_saved));
  byId("more-saved").textContent = totals.tokens_saved
    ? `${percent.format(totals.tokens_saved / (totals.tokens_saved + totals.tokens_sent))} of what fits the window` : "of those that fit the window";
  set("cured", whole.format(totals.cured));
  setIf("prefix", totals.followed, () => percent.format(totals.prefixes_kept / totals.followed));
  setIf("cache", totals.cacheable_tokens, () => percent.format(totals.cached_tokens / totals.cacheable_tokens)
    + (found.usd?.by_cache ? `, ${money.format(found.usd.by_cache)} less` : ""));
  setIf("own", found.own_ms.length, () => inTime(found.own_ms[0]));
  byId("total-own").title = found.own_ms.length ? inWaits(found.own_ms) : "";
  for (const [show, count] of [["changed", totals.edited], ["cured", totals.cured], ["troubled", totals.unanswered]]) {
    const button = byId("filters").querySelector(`[data-filter=${show}]`);
    button.textContent = button.textContent.split(" ")[0] + (count ? ` ${whole.format(count)}` : "");
  }
  showHealth(found);
  showBars(found);
  showUpstreams(found);
  showModels(found.models);
  fill("model", found.models.map((one) => one.model));
  fill("client", found.clients);
  fill("status", ["2xx", "4xx", "5xx", "refused", "failed", "401", "403", "404", "429"]);
}

/** The options of a filter; what is chosen stays one of them. */
const ALL = { model: "All models", client: "All agents", status: "Any status" };

function fill(name, found) {
  const options = [...new Set([...found, ...(selected[name] ? [selected[name]] : [])])];
  const place = byId(name);
  if (place.dataset.options !== options.join("\n")) {
    place.dataset.options = options.join("\n");
    place.replaceChildren(...["", ...options].map((value) => {
      const option = element("option", "", value || ALL[name]);
      option.value = value;
      return option;
    }));
  }
  place.value = selected[name];
}

function showHealth({ health, totals }) {
  const nothing = !totals.requests ? "Ready" : totals.unanswered ? "Nothing is wrong now" : "All is well";
  const lines = health.length ? health : [{ level: "well", words: nothing }];
  const written = JSON.stringify(lines);
  if (byId("troubles").dataset.written === written) return; // a screen reader speaks up at each change
  byId("troubles").dataset.written = written;
  byId("troubles").replaceChildren(...lines.map(({ level, words, since, address, requests }) => {
    const line = element("li", level, element("b", "", words));
    if (since) line.append(element("span", "dim", `since ${atTime(since, !isToday(since))}`));
    if (address) line.append(linkTo(new URLSearchParams(address), requests === 1 ? "Show it" : `Show all ${whole.format(requests)}`));
    return line;
  }));
}

function inTime(milliseconds) {
  if (milliseconds < 10) return `${Number(milliseconds.toFixed(2))} ms`;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

function atTime(seconds, withDay, width = 60) {
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString([], { hour: "numeric", minute: "2-digit", ...(width < 60 ? { second: "2-digit" } : {}) });
  return withDay ? `${at.toLocaleDateString([], { weekday: "short", day: "numeric", month: "short" })}, ${time}` : time;
}

const isToday = (seconds) => new Date(seconds * 1000).toDateString() === new Date().toDateString();

/** Pieces from the bottom up, in a column whose title says what they are. */
function columnOf(title, most, pieces) {
  const column = element("span", "column");
  column.title = title;
  for (const [kind, value] of pieces) {
    if (!value) continue;
    const piece = element("i", kind);
    if (kind === "failed") piece.style.opacity = 0.3 + 0.7 * value;
    else piece.style.height = `${(100 * value) / most}%`;
    column.append(piece);
  }
  return column;
}

const LEAST_BARS = 12; // of a young proxy, whose timeline begins with its first request

/** The smallest round number that is not below this one. */
function roundUp(number) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(number, 1)));
  return [1, 2, 3, 4, 5, 6, 8, 10].find((times) => times * unit >= number) * unit;
}

let timeline = []; // beginnings of the bars that are shown

function showBars({ bars: found, bar_seconds: width, hours, totals, kept_since: kept }) {
  const begun = found.findIndex((bar) => bar.sums.requests);
  const first = period || begun < 0 ? 0 : Math.max(0, Math.min(begun, found.length - LEAST_BARS));
  const bars = found.slice(first).map(({ at, sums }) => ({ at, ...sums }));
  const most = roundUp(Math.max(1, ...bars.map((bar) => bar.tokens_sent + bar.tokens_saved + bar.tokens_over)));
  const withDay = hours > 24 || !bars.length || !isToday(bars[0].at);
  timeline = bars.map((bar) => ({ at: bar.at, words: `${atTime(bar.at, withDay, width)} – ${atTime(bar.at + width, false, width)}` }));
  byId("bars").replaceChildren(...bars.map((bar, place) => columnOf(
    `${timeline[place].words}: ${counted(bar.requests, "request")}, ${counted(bar.tokens_sent, "token")} sent, ${whole.format(bar.tokens_saved)} saved, `
      + `${whole.format(bar.tokens_over)} over the window, ${whole.format(bar.unanswered)} not answered`,
    most, [["failed", bar.unanswered && bar.unanswered / bar.requests], ["gone", bar.tokens_over], ["saved", bar.tokens_saved], ["kept", bar.tokens_sent]])));
  for (const [name, tokens] of [["sent", totals.tokens_sent], ["saved", totals.tokens_saved], ["over", totals.tokens_over]]) byId(`sum-${name}`).textContent = short.format(tokens);
  byId("bars").setAttribute("aria-label", totals.requests ? `${counted(totals.tokens_sent, "token")} sent, ${whole.format(totals.tokens_saved)} saved and `
    + `${whole.format(totals.tokens_over)} over the window, in ${bars.length} periods of ${inTime(width * 1000)}` : "No request yet");
  byId("bars").dataset.nothing = totals.requests ? "" : "No request in this time.";
  byId("token-scale").replaceChildren(...[most, most / 2, 0].map((tokens) => element("span", "", totals.requests ? short.format(tokens) : "")));
  const end = bars.length ? bars[0].at + bars.length * width : 0;
  const ticks = [0, 1, 2, 3].map((part) => bars[0].at + ((end - bars[0].at) * part) / 4);
  byId("axis").replaceChildren(...ticks.map((at) => element("span", "", atTime(at, withDay, width))), element("span", "", "now"));
  byId("since").textContent = totals.requests ? `by ${width === 1 ? "the second" : inTime(width * 1000)} · kept since ${atTime(kept, !isToday(kept), width)}` : "";
}

const inWaits = ([half, slow]) => `half within ${inTime(half)}, 95 % within ${inTime(slow)}`;

/** Each upstream with how much it did not answer, and how long it let wait, over the time of the chart. */
function showUpstreams({ upstreams }) {
  byId("upstreams").replaceChildren(...upstreams.map((one) => {
    const bars = new Map(one.bars.map((bar) => [bar.at, bar]));
    const rate = (bar) => bar.unanswered / bar.requests;
    const worst = [0.05, 0.1, 0.25, 0.5, 1].find((share) => one.bars.every((bar) => rate(bar) <= share));
    const slowest = roundUp(Math.max(1, ...one.bars.map((bar) => bar.first_byte_ms[1] ?? 0)));
    const chart = (kind, top, label, pieces, words) => {
      const columns = element("span", "columns", ...timeline.map(({ at, words: when }) => {
        const bar = bars.get(at);
        return columnOf(`${when}: ${bar ? words(bar) : "nothing"}`, top, bar ? pieces(bar) : []);
      }));
      return element("span", `mini ${kind}`, element("span", "scale", element("span", "", label), element("span", "", 0)), columns);
    };
    const share = one.unanswered ? ` · ${percent.format(one.unanswered / one.requests)}` : "";
    const inAll = ({ unanswered, requests }) => `${whole.format(unanswered)} of ${whole.format(requests)} not answered`;
    const facts = one.problem ? "does not answer" : one.requests ? inAll(one) + share : "no request in this time";
    const item = element("li", one.level, element("b", "", one.upstream), element("span", "", facts));
    if (one.first_byte_ms.length) item.append(element("span", "dim", `first byte: ${inWaits(one.first_byte_ms)}`));
    if (one.requests) {
      item.append(element("span", "minis",
        chart("errors", worst, percent.format(worst), (bar) => [["error", rate(bar)]], inAll),
        chart("waits", slowest, inTime(slowest), ({ first_byte_ms: [half, slow] }) => (half === undefined ? [] : [["slow", slow - half], ["wait", half]]),
          (bar) => (bar.first_byte_ms.length ? `first byte ${inWaits(bar.first_byte_ms)}` : "no answer"))));
      item.lastChild.setAttribute("role", "img");
      item.lastChild.setAttribute("aria-label", `${one.upstream} over time: ${facts}; slowest first byte up to ${inTime(slowest)}`);
    }
    return item;
  }));
}

function showModels(models) {
  const place = byId("view-models");
  if (!models.length) {
    place.replaceChildren(element("p", "nothing", "No model was called in this time."));
    return;
  }
  const labels = ["Window", "Requests", "Received", "Made to fit", "Saved", "Cache hits", "Spent"];
  const head = element("tr", "", ...["Model", ...labels].map((name) => element("th", "", name)));
  const table = element("table", "", element("thead", "", head), element("tbody", "", ...models.map((found) => {
    const one = { ...found, ...found.sums };
    const paid = (name) => (one.usd ? money.format(one.usd[name]) : "–");
    const name = linkOf(one.model, () => narrow({ view: "requests", model: one.model, q: "" }));
    const values = [
      one.window_tokens === null ? "–" : `${whole.format(one.window_tokens)}${one.window_is_guessed ? " (a guess)" : ""}`,
      whole.format(one.requests), short.format(one.tokens_before), whole.format(one.fitted), short.format(one.tokens_saved),
      one.cacheable_tokens ? percent.format(one.cached_tokens / one.cacheable_tokens) : "–", paid("spent"),
    ];
    return element("tr", "", element("th", "", name, element("span", "dim", one.upstream)), ...values.map((value, place) => {
      const cell = element("td", "", value);
      cell.dataset.label = labels[place];
      return cell;
    }));
  })));
  place.replaceChildren(table, element("p", "dim note",
    "Money by the catalogue's list prices, for tokens that the upstream has counted. Saved: tokens that would have fitted into the window and were not sent."));
}

// Asking ------------------------------------------------------------------------------------------------------------

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

function lost(error) {
  say("lost", error instanceof TypeError ? "the proxy does not answer; trying again" : error.message);
}

async function lookAround() {
  clearTimeout(overviewTimer);
  try {
    showOverview(await ask(`overview${period && `?hours=${period}`}`));
    if (selected.view === "conversations") showConversations((await ask("conversations?limit=40")).conversations);
  } catch (error) {
    lost(error);
  }
  if (!paused && !document.hidden) overviewTimer = setTimeout(lookAround, OVERVIEW_MILLISECONDS);
}

function queryOf(before, limit = PAGE) {
  const query = new URLSearchParams({ limit });
  for (const name of FILTERS) if (selected[name]) query.set(name, selected[name]);
  if (period || isNarrowed()) query.set("hours", period || hoursShown || 336);
  if (before) query.set("before", before);
  return `decisions?${query}`;
}

let generation = 0;
let isStale = false; // the rows are those of another question; also when the answer to the latest one is overtaken

/** The first page of the selection; `replace`: instead of the rows already shown. */
async function list({ replace = false } = {}) {
  const mine = ++generation;
  isStale ||= replace;
  try {
    const found = await ask(queryOf());
    if (mine !== generation) return;
    if (isStale) {
      isStale = false;
      rows.clear();
      byId("requests").replaceChildren();
    }
    const first = rows.size === 0;
    reasonWords = found.reasons;
    causeWords = found.causes;
    showRunning(found.running);
    take(found.decisions);
    if (first) byId("older").hidden = found.matching <= rows.size;
    sayIfEmpty();
    showCount(found);
    say(paused ? "wait" : "live", paused ? "paused" : "live");
    if (wanted) openById(wanted);
  } catch (error) {
    lost(error);
  }
}

function showCount({ matching, totals, worker }) {
  const count = isNarrowed() ? `${whole.format(matching)} of ${counted(totals.requests, "request")}` : `${counted(matching, "request")} kept`;
  byId("csv").hidden = !matching;
  const others = worker.workers > 1 && !worker.shared ? ` · worker ${worker.pid}, one of ${worker.workers}: each shows its own` : "";
  byId("count").textContent = matching ? count + others : others.slice(3);
}

async function older() {
  const last = [...rows.values()].find((row) => row.item === byId("requests").lastElementChild);
  try {
    const found = await ask(queryOf(last?.decision.id));
    take(found.decisions, { below: true });
    byId("older").hidden = found.decisions.length < PAGE;
    sayIfEmpty();
  } catch (error) {
    lost(error);
  }
}

const COLUMNS = ["ended", "request_id", "api", "client", "key", "model", "upstream", "outcome", "status", "messages", "tokens_before",
  "tokens_after", "room_tokens", "window_tokens", "prompt_tokens", "cached_tokens", "reply_tokens", "attempts", "own_ms", "first_byte_ms",
  "total_ms", "conversation", "problem"];

/** What is listed, up to 500 rows, as a file for spreadsheets; a cell that a spreadsheet would compute is text. */
async function saveList() {
  try {
    const { decisions } = await ask(queryOf(undefined, 500));
    const cell = (value) => `"${String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
    const lines = [COLUMNS, ...decisions.map((one) => COLUMNS.map((name) => one[name]))].map((line) => line.map(cell).join(","));
    const link = element("a", "");
    link.href = URL.createObjectURL(new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
    link.download = "requests.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    lost(error);
  }
}

/** Follow what happens; where that is not possible, look now and then. */
function follow() {
  events?.close();
  clearTimeout(timer);
  events = null;
  if (paused || document.hidden) return;
  events = new EventSource("events");
  events.onopen = () => list();
  events.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    showRunning(event.running);
    storyTakes(event);
    if (event.decisions.length) {
      if (isNarrowed()) list();
      else {
        take(event.decisions);
        sayIfEmpty();
      }
      clearTimeout(overviewTimer);
      overviewTimer = setTimeout(lookAround, 1000);
    }
    if (byId("state").dataset.state === "live") return;
    say("live", "live");
  };
  events.onerror = () => {
    if (events.readyState !== EventSource.CLOSED) {
      timer = setTimeout(() => list(), POLL_MILLISECONDS); // says so if the proxy is gone
      return;
    }
    timer = setTimeout(() => list().then(follow), POLL_MILLISECONDS);
  };
}

// The selection and its address --------------------------------------------------------------------------------------

function narrow(changes) {
  const before = JSON.stringify(FILTERS.map((name) => selected[name]));
  Object.assign(selected, changes);
  for (const button of byId("views").children) button.setAttribute("aria-pressed", String(button.dataset.view === selected.view));
  for (const button of byId("filters").children) button.setAttribute("aria-pressed", String(button.dataset.filter === selected.show));
  for (const name of ["requests", "conversations", "models"]) byId(`view-${name}`).hidden = name !== selected.view;
  byId("search").hidden = byId("legend").hidden = selected.view !== "requests";
  byId("words").value = selected.q;
  showOnly();
  writeAddress();
  if (selected.view === "conversations") lookAround();
  for (const name of ["model", "client", "status"]) fill(name, (byId(name).dataset.options ?? "").split("\n").filter(Boolean));
  if (before === JSON.stringify(FILTERS.map((name) => selected[name]))) return void showStory();
  askStory().catch(lost);
  return list({ replace: true });
}

/** The filters that have no control of their own. */
function showOnly() {
  const { conversation, upstream, since, show } = selected;
  const only = [];
  if (show === "warned") only.push("with a warning");
  if (show === "guessed") only.push("longer than half of a guessed window");
  if (upstream) only.push(upstream === "-" ? "that were sent nowhere" : `to ${upstream}`);
  if (since) only.push(`since ${atTime(since, !isToday(since), 1)}`);
  if (conversation) only.push(`of conversation ${conversation}`);
  byId("only").hidden = !only.length;
  byId("only").replaceChildren(`Only requests ${only.join(", ")}. `, linkOf("Show all", () => narrow(CLEAR)));
}

/** `#ID` names a request; `#?view=…&show=…&q=…&conversation=…&request=…` names everything. */
function writeAddress() {
  const named = new URLSearchParams();
  for (const [name, value] of Object.entries(selected)) if (value && !(name === "view" && value === "requests") && value !== "all") named.set(name, value);
  if (period) named.set("hours", period);
  let hash = "";
  if ([...named].length) {
    if (opened) named.set("request", opened.id);
    hash = `#?${named}`;
  } else if (opened) hash = `#${encodeURIComponent(opened.id)}`;
  history.replaceState(null, "", hash || location.pathname + location.search);
}

function readAddress() {
  const hash = location.hash.slice(1);
  if (!hash.startsWith("?")) {
    try {
      wanted = decodeURIComponent(hash);
    } catch {
      wanted = ""; // a % that begins no escape
    }
    return {};
  }
  const named = new URLSearchParams(hash.slice(1));
  wanted = named.get("request") ?? "";
  if (/^\d{1,3}$/.test(named.get("hours") ?? "")) period = named.get("hours");
  const among = (name, values) => (values.includes(named.get(name)) ? named.get(name) : values[0]);
  return {
    view: among("view", ["requests", "conversations", "models"]),
    show: among("show", ["all", "changed", "troubled", "cured", "warned", "guessed"]),
    q: (named.get("q") ?? "").slice(0, 200),
    conversation: (named.get("conversation") ?? "").slice(0, 64),
    direct: /^\d{1,3}$/.test(named.get("direct") ?? "") ? named.get("direct") : "", // the turn at which a run without the proxy ended
    model: (named.get("model") ?? "").slice(0, 256),
    client: (named.get("client") ?? "").slice(0, 256),
    status: /^([1-9]\d\d|[1-9]xx|[a-z_]{4,30})$/.test(named.get("status") ?? "") ? named.get("status") : "",
    upstream: (named.get("upstream") ?? "").slice(0, 256),
    since: /^\d{1,12}$/.test(named.get("since") ?? "") ? named.get("since") : "",
  };
}

// Detail -----------------------------------------------------------------------------------------------------------

/** A request with its messages and its price. */
async function askOne(id) {
  const { record, blocks, usd } = await ask(`decisions/${encodeURIComponent(id)}`);
  return { ...record, blocks, usd };
}

/** Open a request that may be under way, or on no page that is loaded. */
async function openById(id, button) {
  wanted = "";
  try {
    const found = await askOne(id);
    const key = keyOf(found);
    open(key, found, button ?? rows.get(key)?.button, found);
  } catch (error) {
    if (byId("detail").hidden) say("lost", error.message);
  }
}

async function open(key, decision, button, found) {
  wanted = "";
  opened?.button?.setAttribute("aria-expanded", "false");
  opened = { key, id: decision.request_id, button };
  writeAddress();
  button?.setAttribute("aria-expanded", "true");
  byId("panes").classList.add("open");
  const pane = byId("detail");
  pane.hidden = false;
  pane.replaceChildren(...detailOf(decision));
  pane.scrollTop = 0;
  pane.querySelector("h2").focus({ preventScroll: false });
  const messages = pane.querySelector(".messages");
  try {
    const whole = found ?? await askOne(decision.request_id);
    if (opened?.key !== key) return;
    if (whole.ended !== decision.ended) throw new Error("A newer request has the same id; this one is out of reach.");
    pane.querySelector(".facts").replaceWith(factsOf(whole)); // with its price
    const why = whyOf(whole);
    if (why && pane.querySelector("p.why")) pane.querySelector("p.why").textContent = why;
    messages.replaceChildren(...blocksOf(whole));
  } catch (error) {
    messages.replaceChildren(element("p", "problem", error.message));
  }
}

function close() {
  if (opened === null) return;
  const { button } = opened;
  opened = null;
  writeAddress();
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
  shut.addEventListener("click", close);
  const parts = [element("div", "detail-head", title, shut)];
  if (isPlanned(decision)) parts.push(stripOfRequest(decision, true));
  if (decision.problem) parts.push(element("p", "problem", decision.problem));
  if (decision.advice) parts.push(element("p", "problem", `This is more than the server has a window for, and it cuts without a word: ${decision.advice}.`));
  if (isChanged(decision)) {
    parts.push(element("p", "why", whyOf(decision)));
    const did = isObserved(decision) ? "What would be done" : "What was done";
    parts.push(element("h3", "", did), element("ul", "reasons", ...Object.entries(decision.edits).map(
      ([reason, count]) => element("li", "", reasonInWords(reason, count)))));
  }
  parts.push(factsOf(decision));
  if (decision.conversation) {
    parts.push(element("p", "", linkOf("Its conversation", () => narrow({ ...CLEAR, view: "requests", conversation: decision.conversation }))));
  }
  parts.push(element("h3", "", "Messages"), element("div", "messages"));
  return parts;
}

/** `tool_output.max_lines=2000` in words. */
function limitInWords(limit) {
  const [setting, value] = limit.split("=");
  const number = whole.format(Number(value));
  return setting === "window" ? `its share of the window, ${number} bytes` : `${setting}, ${number}`;
}

/** Why there was something to do, where the room is the reason. */
function whyOf({ tokens_before: received, room_tokens: room, window_tokens: size, attempts, blocks = [] }) {
  const why = [];
  if (room !== null && received > room) {
    const budget = attempts > 1 ? `The last send had a prompt budget of ${whole.format(room)}` : `Of the window of ${whole.format(size)}, a prompt may have ${whole.format(room)}`;
    why.push(`${whole.format(received)} tokens were received. ${budget}.`);
  }
  const limits = new Map();
  for (const { limit } of blocks) if (limit) limits.set(limit, (limits.get(limit) ?? 0) + 1);
  for (const [limit, count] of limits) why.push(`${counted(count, "result")} exceeded ${limitInWords(limit)}.`);
  if (attempts > 1) why.push("The first send did not succeed; this is the second.");
  return why.join(" ");
}

function factsOf(decision) {
  const [grade, words] = outcomeOf(decision);
  const facts = element("dl", "facts");
  const saved = isPlanned(decision) && !isObserved(decision) && decision.attempt_kind !== "original" ? decision.tokens_before - decision.tokens_after : 0;
  const fact = (name, value, classes = "") => {
    if (value === undefined || value === null || value === "") return;
    facts.append(element("div", "", element("dt", "", name), element("dd", classes, value)));
  };
  fact("Outcome", words, grade);
  if (isPlanned(decision)) {
    fact("Received", `${whole.format(decision.tokens_before)} tokens`);
    fact(isObserved(decision) ? "Would be sent" : "Sent", `${whole.format(decision.tokens_after)} tokens`);
    if (saved > 0) fact("Not sent", `${whole.format(saved)} tokens, ${percent.format(saved / decision.tokens_before)}`);
    if (decision.usd) fact("Cost by list prices", money.format(decision.usd.spent));
    const room = decision.room_tokens;
    fact("Prompt budget", room === null ? "unknown: the window is a guess" : `${whole.format(room)} tokens`);
    fact("Window", `${whole.format(decision.window_tokens)} tokens`);
  }
  fact("Cache-stable prefix", decision.prefix_kept === undefined ? undefined : percent.format(decision.prefix_kept));
  if (decision.attempts > 1) fact("Second send", `${causeWords[decision.cause] ?? "refused"}: ${decision.attempt_kind.replaceAll("_", " ")}`);
  fact("Proxy time", decision.own_ms === undefined ? undefined : inTime(decision.own_ms));
  fact("First byte", decision.first_byte_ms === undefined ? undefined : inTime(decision.first_byte_ms));
  fact("Total", inTime(decision.total_ms));
  const cached = decision.cached_tokens == null ? "" : `, ${percent.format(Math.min(1, decision.cached_tokens / decision.prompt_tokens))} from its cache`;
  if (decision.prompt_tokens) fact("The upstream counted", `${whole.format(decision.prompt_tokens)} tokens${cached}`);
  if (decision.reply_tokens) fact("Reply", counted(decision.reply_tokens, "token"));
  fact("API", decision.api);
  fact("Agent", decision.client);
  fact("Key", decision.key, "mono");
  fact("Upstream", decision.route ? `${decision.upstream || "not asked"}, ${decision.route}` : decision.upstream);
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

function blocksOf(decision) {
  const { blocks } = decision;
  if (!blocks.length) {
    return [element("p", "", whyNoMessages(decision))];
  }
  const runs = [...runsOf(blocks)];
  const most = Math.max(1, ...runs.map(sizeOf)); // one scale for all messages
  const scale = (tokens) => (100 * tokens) / most;
  const id = decision.request_id;
  return runs.map((run) => (run.length > 2 ? foldedOf(run, scale, id) : element("ol", "",
    ...run.map((block) => blockOf(block, scale, id)))));
}

function whyNoMessages(decision) {
  if (isPlanned(decision)) return isChanged(decision) ? "Its messages were not kept." : `All ${whole.format(decision.messages)} messages were sent as they came.`;
  if (decision.outcome === "running" && !decision.upstream) return "It is still being read.";
  if (decision.upstream) return "This request was passed on unread.";
  return decision.outcome === "client_left" ? "The client left before its request was read." : "The proxy refused this request itself; nothing was sent.";
}

/** Of a run: what came, or what is sent where a note has made that more. */
function sizeOf(run) {
  return run.reduce((sum, block) => sum + Math.max(block.tokens_before, block.tokens_after), 0);
}

/** A run as one line that opens; what is in it is made when it is opened. */
function foldedOf(run, scale, id) {
  const tokens = run.reduce((sum, block) => sum + block.tokens_before, 0);
  const gone = run[0].tokens_after === 0;
  const summary = element("summary", "", element("b", "", `${whole.format(run.length)} messages `),
    `${gone ? "left out" : "as they came"} · ${whole.format(tokens)} tokens · ${run[0].message}–${run.at(-1).message}`);
  const folded = element("details", "", summary);
  const bar = stripOf({ kept: gone ? 0 : tokens, cut: 0, gone: gone ? tokens : 0 }, scale);
  bar.style.height = "6px";
  bar.style.marginTop = "4px";
  summary.append(bar);
  folded.addEventListener("toggle", () => {
    if (folded.open && !folded.querySelector("ol")) folded.append(element("ol", "", ...run.map((block) => blockOf(block, scale, id))));
  });
  return gone && run[0].artifacts.length ? element("div", "", folded, ...run[0].artifacts.map((name) => artifactOf(name, id))) : folded;
}

function blockOf(block, scale, id) {
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
    const chips = [...block.reasons.map((reason) => reasonInWords(reason, 1)), ...(block.limit ? [`over ${limitInWords(block.limit)}`] : [])];
    item.append(element("span", "why", ...chips.map((words) => element("span", "chip", words))),
      ...(gone ? [] : block.artifacts.map((name) => artifactOf(name, id))));
  }
  return item;
}

// Keys and buttons ---------------------------------------------------------------------------------------------------

byId("requests").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const buttons = [...byId("requests").querySelectorAll(".row")];
  const next = buttons[buttons.indexOf(document.activeElement) + step];
  if (next) next.focus();
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
});
byId("filters").addEventListener("click", (event) => {
  if (event.target.dataset.filter) narrow({ show: event.target.dataset.filter });
});
byId("views").addEventListener("click", (event) => {
  if (event.target.dataset.view) narrow({ view: event.target.dataset.view });
});
let typing = 0;
byId("words").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => narrow({ q: byId("words").value.trim() }), 250);
});
byId("search").addEventListener("submit", (event) => event.preventDefault());
for (const name of ["model", "client", "status"]) byId(name).addEventListener("change", () => narrow({ [name]: byId(name).value }));
byId("hours").addEventListener("change", () => {
  period = byId("hours").value;
  writeAddress();
  lookAround();
  list({ replace: true });
});
byId("csv").addEventListener("click", saveList);
byId("older").addEventListener("click", older);
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Resume" : "Pause";
  if (paused) say("wait", "paused");
  follow();
  if (!paused) lookAround();
});
document.addEventListener("visibilitychange", () => {
  follow();
  if (!document.hidden) lookAround();
});
/** An address that leads to requests has them in sight. */
function bringUp() {
  if (isFiltered() && !selected.conversation) byId("panes").scrollIntoView();
}

window.addEventListener("hashchange", () => {
  const named = readAddress();
  Promise.resolve(narrow(named)).then(bringUp);
  if (wanted) openById(wanted);
});
/** A button that copies what it says. */
function copies(button, text) {
  button.textContent = text;
  button.title = "Copy";
  button.addEventListener("click", () => navigator.clipboard?.writeText(text).then(() => {
    button.dataset.copied = "copied";
    setTimeout(() => delete button.dataset.copied, 2000);
  }));
  return button;
}

copies(byId("base-url"), new URL("v1", location.href.replace(/[#?].*$/, "").replace(/[^/]*$/, "")).href);
byId("agents").replaceChildren(...AGENTS.map((name) => copies(element("button", "copy"), `context-proxy run ${name}`)));
byId("scale").replaceChildren(element("span", "time", "Ended"), element("span", "who", "Model, agent"),
  element("span", "strip", ...[["0", 0], ["budget", 1], ["2×", 2], ["4×", 4], ["8×", 8], ["16×", 16], ["32×", 32]].map(([words, share]) => {
    const tick = element("span", "", words);
    tick.style.left = `${100 * scaled(share)}%`;
    return tick;
  })), element("span", "tokens", "Tokens"), element("span", "speed", "Time, reply"), element("span", "outcome", "Outcome"));
document.addEventListener("DOMContentLoaded", () => { // the other script is there, too
  Object.assign(selected, readAddress());
  narrow({});
  const told = list().then(askStory).catch(lost); // with the list come the words for reasons
  follow();
  Promise.all([told, lookAround()]).then(bringUp);
});
