// One conversation as a picture, and what each turn has cut, as messages. Rule: content is read with the key that it came
// with, and is put in as text; everything else is sizes.
"use strict";

const range = byId("turn-range");
const STAYS_MILLISECONDS = 60_000; // how long the page stays with a conversation while others are under way
const LEAST_CUT = 0.01; // of the prompt budget: estimates move by less
const MAX_READ_BYTES = 2 ** 21; // of an artifact that is shown as messages; a longer one is paged
const MAX_FILES = 12; // artifacts that are read for the names of files
const MOST_MARKS = 200; // in one text

const story = { of: null, blocks: [], turn: 0, runs: false, seen: 0 };
const sized = (one = story.of) => one.turns.filter((turn) => typeof turn.tokens_before === "number");
/** Two: it was not answered; one: a second send has cured it. */
const troubleOf = (turn) => (turn.outcome === "answered" ? Number(turn.attempts > 1) : 2);
const windowOf = (turn) => turn.window_tokens ?? budgetOf(turn);
const lostBy = (turn) => (turn ? Math.max(0, turn.tokens_before - turn.tokens_after) : 0);
/** Tokens that a turn has lost and the one before it had not. */
const cutBy = (turns, place) => {
  const more = lostBy(turns[place]) - lostBy(turns[place - 1]);
  return more > LEAST_CUT * budgetOf(turns[place]) ? more : 0;
};

// The picture -------------------------------------------------------------------------------------------------------

function drawn(name, given, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const line = (name, d) => drawn("path", { class: name, d });
const disc = (name, cx, cy, r) => drawn("circle", { class: name, cx, cy, r });
const cross = (name, x, y, r) => line(name, `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`);
const words = (text, x, y, name, anchor = "start") => drawn("text", { class: name, x, y, "text-anchor": anchor }, text);

/** The picture of some turns; `direct`: the turn at which the same work ended without the proxy; `isBare`: no words. */
function pictureOf(turns, { width, height, direct = 0, runs = false, isBare = false }) {
  const isWide = width > 640;
  const [left, right, top] = isBare ? [0, width, 2] : [isWide ? 156 : 44, width - (isWide ? 16 : 6), height > 150 ? 44 : 24];
  const count = Math.max(turns.length, direct, 1);
  const step = Math.min((right - left) / count, 56);
  const shares = turns.map((turn) => turn.tokens_before / budgetOf(turn));
  const most = scaled(Math.max(1.3, ...shares));
  const base = top + height;
  const y = (share) => base - (height * scaled(share)) / most;
  const middle = (place) => left + (place + 0.5) * step;
  const [bar, dot] = [step > 6 ? step * 0.74 : step, Math.max(1, Math.min(5, step * 0.3))];
  const [first, dots] = [base + 22, base + (direct ? 46 : 18)];
  const sent = shares.map((share, place) => `${place ? "L" : "M"}${left + place * step} ${y(share)}h${step}`).join("");
  const parts = [drawn("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    drawn("rect", { class: "weft", width: 7, height: 7 }), drawn("rect", { class: "warp", width: 2.4, height: 7 }))];
  const lost = turns.map((turn, place) => (lostBy(turn) ? `M${left + place * step} ${base}V${y(shares[place])}h${step}V${base}` : "")).join("");
  parts.push(line("unread", lost), line("sent-line", sent));
  for (let many = isBare ? Infinity : 2; scaled(many) <= most && many <= MOST_BUDGETS; many *= 2) {
    if (y(many / 2) - y(many) > 14 || many * 2 > MOST_BUDGETS || scaled(many * 2) > most) {
      parts.push(line("grid", `M${left} ${y(many)}H${right}`), words(`${many} ×`, left - 8, y(many) + 4, "tick", "end"));
    }
  }
  const marks = turns.map((turn, place) => {
    const low = y(turn.tokens_after / budgetOf(turn));
    parts.push(drawn("rect", { class: "saw", x: middle(place) - bar / 2, y: low, width: bar, height: Math.max(1, base - low), rx: Math.min(3, bar / 4) }));
    if (troubleOf(turn) > 1) return cross("x", middle(place), dots, dot);
    if (!cutBy(turns, place)) return disc("dot", middle(place), dots, dot);
    parts.push(line("notch", `M${middle(place)} ${y(1)}V${low}`));
    return disc("dot cut", middle(place), dots, step > 8 ? dot + 1 : dot);
  });
  parts.push(line("window", `M${left} ${y(1)}H${right}`));
  if (isBare) return drawn("svg", { class: "picture", viewBox: `0 0 ${width} ${base}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts);
  parts.push(...marks, words(!isWide ? "1 ×" : turns.length && turns.at(-1).room_tokens == null ? "assumed window" : "the model's window", left - 8, y(1) + 4, "name strong", "end"));
  if (isWide && turns.length) {
    parts.push(words(y(1) - top > 40 ? "the agent sent" : "", 0, (y(1) + top) / 2 + 4, "name"), words("the model saw", 0, (y(1) + base) / 2 + 4, "name saw"),
      words(direct ? "through the proxy" : "turns", 0, dots + 4, "name"));
    if (parts.some((part) => part.matches(".notch"))) parts.push(disc("dot cut key", 5, dots + 18, 5), words("something was cut", 15, dots + 22, "tick"));
  }
  if (direct) {
    const [x, high] = [middle(direct - 1), y(shares[direct - 1] ?? 1)];
    parts.push(line("leader", `M${x} ${top - 6}V${high - 9}`), cross("x big", x, high - 1, 6), cross("x", x, first, dot),
      words(`directly: ${isWide ? "refused at " : ""}turn ${direct}`, x < right - 200 ? x + 8 : x - 8, top + 4, "name bad-end", x < right - 200 ? "start" : "end"));
    for (let place = 0; place < direct - 1; place += 1) parts.push(disc("dot past", middle(place), first, dot));
    if (isWide) parts.push(words("directly", 0, first + 4, "name"));
  }
  const latest = turns.at(-1);
  if (latest) {
    parts.push(disc(runs ? "now runs" : "now", middle(turns.length - 1), dots, dot + 4));
    if (height > 150 && shares.at(-1) > 1) {
      const how = troubleOf(latest) > 1 ? ["failed", "bad-end"] : ["answered", "good-end"];
      const over = isWide ? `, ${times(latest.tokens_before / windowOf(latest))} times the window` : "";
      parts.push(words(`${direct && isWide ? "through the proxy: " : ""}${how[0]} at turn ${turns.length}${over}`,
        Math.max(left + turns.length * step, left + (isWide ? 300 : 130)), y(shares.at(-1)) - 9, `name ${how[1]}`, "end"));
    }
  }
  const every = [1, 5, 10, 25, 50, 100, 250].find((one) => one * step >= 34) ?? 500;
  for (let turn = every; turn <= count; turn += every) parts.push(words(turn, middle(turn - 1), dots + 22, "tick", "middle"));
  const tall = dots + 30;
  return { picture: drawn("svg", { class: "picture", width, height: tall, "aria-hidden": "true" }, ...parts), left, step, tall, top, count };
}

// The card ----------------------------------------------------------------------------------------------------------

const several = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);
const fewOf = (names, most = 4) => several(names.length > most ? [...names.slice(0, most - 1), `${names.length - most + 1} more`] : names);
const times = (share) => (share >= 9.95 ? Math.round(share) : Number(share.toFixed(1)));
const titleOf = ({ session, client, tool, model }) => session || [client, tool].filter(Boolean).join(" · ") || model || "A conversation";

/** What is gone by the latest turn: results by their tools, and whether all can be read. */
function lossInWords() {
  const changed = story.blocks.filter((block) => block.tokens_after < block.tokens_before);
  const gone = changed.filter((block) => block.tool && !block.tokens_after).length;
  const cut = changed.filter((block) => block.tool && block.tokens_after).length;
  if (!gone && !cut) return ["nothing", changed.length ? `${counted(changed.length, "message")} of no tool` : "every message was sent"];
  const tools = new Map();
  for (const { tool } of changed) if (tool) tools.set(tool, (tools.get(tool) ?? 0) + 1);
  const names = [...tools].sort((one, other) => other[1] - one[1]).map(([name]) => name);
  const unkept = changed.filter((block) => !block.tokens_after && !block.artifacts.length).length;
  const files = story.files?.length ? ` (${fewOf(story.files)})` : "";
  return [counted(gone || cut, "result"), `${gone ? "" : "shortened, "}of ${fewOf(names)}${files}${gone && cut ? `, ${whole.format(cut)} shortened` : ""}; `
    + (unkept ? `${whole.format(unkept)} not kept` : "all readable")];
}

function turnInWords(turns, place) {
  const turn = turns[place];
  if (!turn) return "No turn could be read yet.";
  const cut = cutBy(turns, place);
  return `Turn ${place + 1}: ${counted(turn.tokens_before, "token")} from the agent, ${whole.format(turn.tokens_after)} for the model`
    + `${cut ? `; ${whole.format(cut)} more are cut` : ""}${["", "; sent twice", "; it failed"][troubleOf(turn)]}.`;
}

function showStory() {
  const { of: one } = story;
  const isListed = selected.view === "requests";
  const isLarge = isListed && selected.conversation !== "";
  document.body.classList.toggle("one-conversation", isLarge);
  byId("story").hidden = !one || !isListed;
  if (byId("story").hidden) return;
  const turns = sized();
  const latest = turns.at(-1);
  const { session, client, model } = one.turns.at(-1);
  byId("story-title").textContent = titleOf(one.turns.at(-1));
  byId("story-who").textContent = [session && client, story.folder && `in ${story.folder}`, model,
    `began ${atTime(one.began, !isToday(one.began))}`, counted(one.sums.requests, "turn"), story.runs && "a turn is under way"].filter(Boolean).join(" · ");
  byId("story-open").textContent = isLarge ? "All requests" : "Open";
  const facts = latest ? [
    ["Sent by the agent", `${short.format(latest.tokens_before)} tokens`, latest.tokens_before > windowOf(latest)
      ? `${times(latest.tokens_before / windowOf(latest))} times the window of ${whole.format(windowOf(latest))}` : `${percent.format(latest.tokens_before / windowOf(latest))} of the window`],
    ["Seen by the model", `${short.format(latest.tokens_after)} tokens`, `${percent.format(latest.tokens_after / budgetOf(latest))} of its prompt budget`],
    ["Lost so far", ...lossInWords()],
    ["Saved", one.sums.fitted ? counted(one.sums.fitted, "request") : "nothing yet", one.sums.fitted
      ? `too long for the window, yet answered; ${short.format(one.sums.tokens_saved)} tokens saved` : "no request was too long"]] : [];
  byId("story-facts").replaceChildren(...facts.map(([name, value, more]) =>
    element("div", "", element("dt", "", name), element("dd", "", value), element("dd", "more", more))));
  story.drawn = pictureOf(turns, { width: Math.max(280, byId("strip").clientWidth), height: isLarge ? 236 : 92,
    direct: isLarge ? Number(selected.direct) : 0, runs: story.runs });
  const { picture, left, step, tall, count } = story.drawn;
  byId("strip").replaceChildren(picture, range);
  range.hidden = !latest;
  range.max = count;
  Object.assign(range.style, { left: `${left}px`, width: `${step * count}px`, height: `${tall}px` });
  range.style.setProperty("--step", `${step}px`);
  pointAt(story.turn || turns.length);
  range.value = story.turn || turns.length;
  byId("turn").hidden = !isLarge;
  if (isLarge) showTurn();
}

function showConversations(conversations) {
  byId("view-conversations").replaceChildren(...conversations.map((one) => {
    const turns = sized(one);
    const latest = turns.at(-1);
    const { requests, edited, unanswered } = one.sums;
    const { session, client, model } = one.turns.at(-1);
    const spark = element("span", "spark", pictureOf(turns, { width: 400, height: 42, isBare: true }));
    spark.setAttribute("role", "img");
    spark.setAttribute("aria-label", turnInWords(turns, turns.length - 1));
    const facts = [counted(requests, "request"), edited && `${whole.format(edited)} edited`, unanswered && counted(unanswered, "problem")];
    const button = element("button", "conversation", element("span", "model", titleOf(one.turns.at(-1))),
      element("span", "dim", `${atTime(one.began, !isToday(one.began))} – ${atTime(one.ended, !isToday(one.ended))} · ${[session && client, model].filter(Boolean).join(" · ")}`),
      spark,
      element("span", "", latest ? `${short.format(latest.tokens_before)} tokens, ${percent.format(latest.tokens_after / budgetOf(latest))} of the budget in use` : ""),
      element("span", "dim", facts.filter(Boolean).join(" · ")));
    button.addEventListener("click", () => narrow({ ...CLEAR, view: "requests", conversation: one.conversation }));
    return element("li", "", button);
  }));
  if (!conversations.length) byId("view-conversations").append(element("li", "nothing", "No conversation yet."));
}

/** Say what a turn did, and mark it in the picture. */
function pointAt(number) {
  const said = turnInWords(sized(), number - 1);
  byId("turn-words").textContent = said;
  range.setAttribute("aria-valuetext", said);
  const { picture, left, step, tall, top } = story.drawn;
  picture.querySelector(".pointed")?.remove();
  if (number) picture.append(drawn("rect", { class: "pointed", x: left + (number - 1) * step, y: top - 8, width: step, height: tall - top - 12 }));
}

/** A button that looks like a link. */
function linkOf(text, act) {
  const button = element("button", "link", text);
  button.addEventListener("click", () => act(button));
  return button;
}

// Reading what was cut ----------------------------------------------------------------------------------------------

/** The text of a message, or of a part of one, of any API; a call as its tool and arguments. */
function textOf(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(textOf).filter(Boolean).join("\n");
  if (!value) return "";
  const call = value.function ?? value;
  const given = call.arguments ?? call.input;
  const called = call.name && given !== undefined ? `${call.name} ${typeof given === "string" ? given : JSON.stringify(given)}` : "";
  return [textOf(value.text ?? value.thinking ?? value.content ?? value.output ?? value.summary), called, textOf(value.tool_calls)].filter(Boolean).join("\n");
}

/** The messages of an artifact; none if it holds none, or is too large to be read whole. */
async function messagesOf(name) {
  if (!name.startsWith("tool_messages_")) return [];
  try {
    if (JSON.parse((await askStore(name, "stat")).text).bytes > MAX_READ_BYTES) return [];
    const { places, messages } = JSON.parse((await askStore(name, "")).text);
    return messages.map((message, place) => ({ place: places[place], text: textOf(message) || JSON.stringify(message) }));
  } catch {
    return []; // not readable, which is said elsewhere, or of an earlier version
  }
}

/** What was taken out and what stands in its place, for the key that it came with. */
function artifactOf(name, request, isOpen = false) {
  const link = element("a", "mono", name);
  Object.assign(link, { href: `artifacts/${encodeURIComponent(name)}`, target: "_blank", rel: "noopener noreferrer" });
  const copy = linkOf("Copy path", async () => { copy.textContent = await copyPath(name); });
  const content = element("div", "content");
  const folded = element("details", "artifact", element("summary", "", "What was taken out, and what stands there now"), link, " ", copy, content);
  folded.addEventListener("toggle", () => {
    if (folded.open && !content.childElementCount) readBoth(name, request, content);
  });
  folded.open = isOpen;
  return folded;
}

/** On the machine of the proxy, or in its bucket; what to say of it. */
async function copyPath(name) {
  try {
    const path = `${(await ask("-/status")).artifacts}/${name}`;
    return navigator.clipboard ? await navigator.clipboard.writeText(path).then(() => "Copied") : path; // browsers keep it from pages without TLS
  } catch (error) {
    return error.message;
  }
}

async function readBoth(name, request, place) {
  const [was, now] = [element("div", ""), element("div", "")];
  const refused = await readLines(name, `1-${ARTIFACT_LINES}`, was);
  if (refused === 401 || refused === 404) {
    place.replaceChildren(was, keyForm(name, () => (byId("turn").contains(place) ? showTurn() : readBoth(name, request, place))));
    return;
  }
  place.replaceChildren(element("div", "sides",
    element("div", "", element("h4", "", "Taken out"), was), element("div", "", element("h4", "", "Sent in its place"), now)));
  const messages = await messagesOf(name);
  if (messages.length) was.replaceChildren(...messages.map(({ place: at, text }) => element("div", "message", element("p", "by", at), contentOf(text))));
  const { text, problem } = await askStore(name, `instead=${encodeURIComponent(request)}`);
  const content = text ? contentOf(text) : element("p", "dim", problem || "Nothing.");
  now.replaceChildren(content);
  find();
  if (text) content.scrollTop = (content.scrollHeight * text.indexOf("[context-proxy")) / text.length - 20; // a note may stand behind a result
}

/** A text that scrolls, by keyboard too. */
function contentOf(text) {
  const content = element("pre", "", text);
  content.tabIndex = 0;
  return content;
}

/** A page of what was taken out; the status of a refusal. */
async function readLines(name, lines, place) {
  const { text, status, problem } = await askStore(name, `lines=${lines}`);
  place.replaceChildren(problem ? element("p", "dim", problem) : contentOf(text));
  if (problem) return status;
  const [, next] = /lines=([\d:-]+)/.exec(text.split("\n", 1)[0]) ?? []; // the first line names the next page, if there is one
  if (!next) return 0;
  place.append(linkOf("Next page", () => readLines(name, next, place)));
  return 0;
}

async function askStore(name, query) {
  try {
    const answer = await fetch(`artifacts/${encodeURIComponent(name)}?${query}`, { headers: agentKey ? [agentKey] : [], cache: "no-store" });
    const text = await answer.text();
    return answer.ok ? { text } : { status: answer.status, problem: JSON.parse(text).error.message };
  } catch (error) {
    return { problem: error instanceof TypeError ? "The proxy does not answer." : error.message };
  }
}

/** Clients send the same key in different headers, and an artifact is for the key as it was sent. */
async function chooseHeader(name, key) {
  for (const header of [["authorization", `Bearer ${key}`], ["x-api-key", key], ["api-key", key]]) {
    agentKey = header;
    if ((await askStore(name, "stat")).text) return;
  }
}

function keyForm(name, again) {
  const field = element("input", "");
  Object.assign(field, { type: "password", autocomplete: "off", required: true });
  const form = element("form", "key", element("label", "", "API key of the request, to read it ", field), element("button", "", "Read"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    chooseHeader(name, field.value).then(again);
  });
  return form;
}

// A turn ------------------------------------------------------------------------------------------------------------

/** What one turn has cut that the one before it had not. */
async function showTurn() {
  const [turns, place] = [sized(), byId("turn")];
  const number = story.turn || turns.findLastIndex((_, at) => cutBy(turns, at)) + 1;
  const turn = turns[number - 1];
  const shown = `${turn?.request_id} ${agentKey}`;
  if (place.dataset.shown === shown) return;
  place.dataset.shown = shown;
  if (!turn) return void place.replaceChildren(element("p", "dim", "No turn has cut anything yet."));
  try {
    const [now, earlier] = await Promise.all([turn, turns[number - 2]].map((one) => (one && isChanged(one) ? askOne(one.request_id) : { blocks: [] })));
    if (place.dataset.shown !== shown) return;
    const known = new Map(earlier.blocks.map((block) => [block.message, block.tokens_after]));
    const cut = now.blocks.filter((block) => block.tokens_after < (known.get(block.message) ?? block.tokens_before));
    const seek = element("input", "");
    Object.assign(seek, { type: "search", placeholder: "Find in what was cut", maxLength: 200, ariaLabel: "Find in what was cut" });
    seek.addEventListener("input", find);
    place.replaceChildren(element("div", "turn-head",
      element("h3", "", `Turn ${number} cut ${cut.length ? counted(cut.length, "message") : "nothing more"}`), cut.length && agentKey ? seek : null,
      linkOf("The whole request", (button) => openById(turn.request_id, button))),
      ...[...runsOf(cut)].map((run) => cutInWords(run, turn.request_id)));
    askFiles();
  } catch (error) {
    place.replaceChildren(element("p", "problem", error.message));
  }
}

function cutInWords(run, request) {
  const [before, after] = ["tokens_before", "tokens_after"].map((name) => run.reduce((sum, block) => sum + block[name], 0));
  const [first, last] = [run[0].message, run.at(-1).message];
  const names = [...new Set(run.flatMap((block) => block.artifacts))];
  return element("div", "cutting", element("b", "", `${first === last ? `Message ${first}` : `Messages ${first}–${last}`}, `
    + (after ? `${whole.format(before)} → ${counted(after, "token")}` : `${counted(before, "token")} left out`)),
  " ", element("span", "dim", several([...new Set(run.map((block) => block.tool).filter(Boolean))])), " ",
  ...run[0].reasons.map((reason) => element("span", "chip", reasonInWords(reason, run.length))),
  ...names.map((name) => artifactOf(name, request, agentKey !== null)));
}

/** Show the messages in which the words of the search stand, and mark these. */
function find() {
  const sought = byId("turn").querySelector("[type=search]")?.value.toLowerCase() ?? "";
  for (const content of byId("turn").querySelectorAll("pre")) {
    const text = content.textContent;
    const [low, parts] = [text.toLowerCase(), []];
    let from = 0;
    for (let at; sought && parts.length < 2 * MOST_MARKS && (at = low.indexOf(sought, from)) >= 0; from = at + sought.length) {
      parts.push(text.slice(from, at), element("mark", "", text.slice(at, at + sought.length)));
    }
    content.replaceChildren(...parts, text.slice(from));
    content.closest(".message")?.toggleAttribute("hidden", sought !== "" && !parts.length);
  }
}

/** With the key: the names of files that are lost, and of the folder that they have in common. */
async function askFiles() {
  if (!agentKey || story.files) return;
  story.files = [];
  const paths = new Set();
  for (const name of [...new Set(story.blocks.flatMap((block) => (block.tokens_after ? [] : block.artifacts)))].slice(-MAX_FILES)) {
    for (const { text } of await messagesOf(name)) {
      for (const [, path] of text.matchAll(/"(?:file_?path|path|file|filename|notebook_path)": ?"([^"\\]{1,400})"/gi)) {
        if (!path.includes("/tool-output/")) paths.add(path); // that is a copy of ours
      }
    }
  }
  const folders = [...paths].filter((path) => path.startsWith("/")).map((path) => path.split("/").slice(0, -1));
  const common = (folders[0] ?? []).filter((_, at) => folders.every((one) => `${one.slice(0, at + 1)}` === `${folders[0].slice(0, at + 1)}`));
  story.files = [...new Set([...paths].map((path) => path.split("/").at(-1)))];
  story.folder = common.at(-1);
  showStory();
}

// Asking for a conversation -----------------------------------------------------------------------------------------

/** Load the conversation that is chosen, or the latest one. */
async function askStory() {
  const name = selected.conversation;
  const { conversations: [found = null] } = await ask(`conversations?${new URLSearchParams({ limit: 1, turns: 1000, conversation: name })}`);
  if (name !== selected.conversation) return undefined;
  if (found && !name && selected.direct) return narrow({ conversation: found.conversation });
  if (found?.conversation !== story.of?.conversation) Object.assign(story, { blocks: [], turn: 0, files: undefined, folder: undefined });
  Object.assign(story, { of: found, seen: Date.now() });
  showStory();
  return askLoss();
}

/** What is lost, by the latest turn. */
async function askLoss() {
  const latest = story.of && sized().at(-1);
  if (!latest || story.asked === latest.request_id) return;
  story.asked = latest.request_id;
  const blocks = isChanged(latest) ? (await askOne(latest.request_id)).blocks : [];
  if (story.asked !== latest.request_id) return;
  story.blocks = blocks;
  showStory();
}

/** Requests that have ended or are under way, as they come with an event. */
function storyTakes({ decisions, running }) {
  const one = story.of;
  const isOf = (each) => each.conversation && each.conversation === one?.conversation;
  const mine = decisions.filter(isOf).reverse();
  const isFree = selected.conversation === "" && Date.now() - story.seen > STAYS_MILLISECONDS;
  if (!mine.length && (!one || isFree) && decisions.some((each) => each.conversation)) return void askStory().catch(lost);
  const runs = running.some(isOf);
  if (!one || (!mine.length && runs === story.runs)) return;
  Object.assign(story, { runs, seen: Date.now() });
  for (const each of mine) {
    if (one.turns.some((turn) => turn.request_id === each.request_id)) continue;
    one.turns.push(each);
    one.sums.requests += 1;
    one.sums.fitted += Number(each.fitted ?? 0);
    one.sums.tokens_saved += each.tokens_saved ?? 0;
  }
  showStory();
  askLoss().catch(lost);
}

byId("story-open").addEventListener("click", () => narrow({ ...CLEAR, view: "requests", conversation: selected.conversation ? "" : story.of.conversation }));
for (const name of ["input", "pointerleave"]) range.addEventListener(name, () => pointAt(Number(range.value)));
range.addEventListener("change", () => {
  story.turn = Number(range.value);
  if (selected.conversation) showTurn();
  else byId("story-open").click();
});
range.addEventListener("pointermove", ({ offsetX }) => pointAt(Math.max(1, Math.min(sized().length, Math.ceil(offsetX / story.drawn.step)))));
new ResizeObserver(() => {
  if (story.of && byId("strip").clientWidth !== story.width) showStory();
  story.width = byId("strip").clientWidth;
}).observe(byId("strip"));
