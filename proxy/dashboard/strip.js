// One conversation as a picture: what the agent sent, turn by turn, above what the model saw; and what a turn has cut, as
// messages. Rule: content is read with the key that it came with, and is put in as text; everything else is sizes.
"use strict";

const TURNS = 1000;
const STAYS_MILLISECONDS = 60_000; // how long the page stays with a conversation while others are under way
const MAX_READ_BYTES = 2 ** 21; // of an artifact that is shown as messages; a longer one is paged
const MAX_FILES = 40; // artifacts that are read for the names of files
const WIDEST_TURN = 56;

const story = { of: null, blocks: [], turn: 0, runs: false, seen: 0, asked: 0, files: null };

// The picture -------------------------------------------------------------------------------------------------------

const inPicture = (name, given, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, typeof value === "number" ? value.toFixed(1) : value);
  made.append(...children);
  return made;
};

const lostBy = (turn) => Math.max(0, turn.tokens_before - turn.tokens_after);
/** A turn that has lost more than the one before it. */
const isCut = (turn, before) => lostBy(turn) > (before ? lostBy(before) : 0);
const isSized = (turn) => typeof turn.tokens_before === "number";

function markOf(turn, before) {
  if (turn.troubled > 1) return "failed";
  return isCut(turn, before) ? "cut" : "kept";
}

const cross = (x, y, size, name) => inPicture("path", { class: name, d: `M${x - size} ${y - size}L${x + size} ${y + size}M${x - size} ${y + size}L${x + size} ${y - size}` });

/** The picture of some turns, `width` pixels wide; `direct`: the turn at which the same work ended without the proxy. */
function pictureOf(turns, { width, height, direct = 0, runs = false }) {
  const isWide = width > 640;
  const [left, right, top] = [isWide ? 156 : 44, isWide ? 16 : 6, height > 150 ? 44 : 24];
  const count = Math.max(turns.length, direct);
  const step = Math.min((width - left - right) / Math.max(1, count), WIDEST_TURN);
  const most = Math.max(scaled(1.3), ...turns.map((turn) => scaled(turn.tokens_before / budgetOf(turn))));
  const base = top + height;
  const y = (share) => base - (height * scaled(share)) / most;
  const middle = (place) => left + (place + 0.5) * step;
  const wide = step > 6 ? step * 0.74 : step;
  const [sent, seen, marks] = [[], [], []];
  const rows = direct ? [base + 22, base + 46] : [base + 18];
  const dots = rows.at(-1);
  const dot = Math.max(1, Math.min(5, step * 0.3));
  turns.forEach((turn, place) => {
    const [x, high] = [left + place * step, y(turn.tokens_before / budgetOf(turn))];
    sent.push(`${place ? "L" : "M"}${x.toFixed(1)} ${high.toFixed(1)}H${(x + step).toFixed(1)}`);
    const low = y(turn.tokens_after / budgetOf(turn));
    seen.push(inPicture("rect", { class: "saw", x: middle(place) - wide / 2, y: low, width: wide, height: Math.max(1, base - low), rx: Math.min(3, wide / 4) }));
    const mark = markOf(turn, turns[place - 1]);
    if (mark === "failed") marks.push(cross(middle(place), dots, dot, "x"));
    else marks.push(inPicture("circle", { class: `dot ${mark}`, cx: middle(place), cy: dots, r: mark === "cut" && step > 8 ? dot + 1 : dot }));
    if (mark === "cut") marks.push(inPicture("path", { class: "notch", d: `M${middle(place)} ${y(1)}V${low}` }));
  });
  const end = left + turns.length * step;
  const line = y(1);
  const latest = turns.at(-1);
  const parts = [
    inPicture("defs", {}, inPicture("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      inPicture("rect", { class: "weft", width: 7, height: 7 }), inPicture("rect", { class: "warp", width: 2.4, height: 7 }))),
  ];
  if (turns.length) {
    parts.push(inPicture("path", { class: "unseen-tokens", d: `${sent.join("")}V${base}H${left}Z` }), ...seen,
      inPicture("path", { class: "sent-line", d: sent.join("") }));
  }
  for (const many of [2, 4, 8, 16, 32]) {
    if (scaled(many) > most) break;
    parts.push(inPicture("path", { class: "grid", d: `M${left} ${y(many)}H${width - right}` }),
      inPicture("text", { class: "tick", x: left - 8, y: y(many) + 4, "text-anchor": "end" }, `${many} ×`));
  }
  const write = (words, x, where, name, anchor = "start") => parts.push(inPicture("text", { class: name, x, y: where, "text-anchor": anchor }, words));
  parts.push(inPicture("path", { class: "window", d: `M${left} ${line}H${width - right}` }), ...marks);
  write(isWide ? "the model's window" : "1 ×", left - 8, line + 4, "row-name window-name", "end");
  if (latest && isWide) {
    write("the agent sent", 0, (line + top) / 2 + 4, "row-name");
    write("the model saw", 0, (line + base) / 2 + 4, "row-name saw-name");
    write(direct ? "through the proxy" : "turns", 0, dots + 4, "row-name");
    if (turns.some((turn, place) => markOf(turn, turns[place - 1]) === "cut")) {
      parts.push(inPicture("circle", { class: "dot cut", cx: 5, cy: dots + 18, r: 5 }));
      write("something was cut", 15, dots + 22, "tick");
    }
  }
  if (direct) {
    const at = turns[direct - 1];
    const [x, high] = [middle(direct - 1), at ? y(at.tokens_before / budgetOf(at)) : line];
    parts.push(inPicture("path", { class: "leader", d: `M${x} ${top - 6}V${high - 9}` }), cross(x, high - 1, 6, "x big"));
    write(isWide ? `directly: refused at turn ${direct}` : `directly: turn ${direct}`, x + 8, top + 4, "words bad-words");
    for (let place = 0; place < direct - 1; place += 1) parts.push(inPicture("circle", { class: "dot gone-dot", cx: middle(place), cy: rows[0], r: dot }));
    parts.push(cross(x, rows[0], dot, "x"));
    if (isWide) write("directly", 0, rows[0] + 4, "row-name");
  }
  if (latest) {
    parts.push(inPicture("circle", { class: runs ? "now runs" : "now", cx: middle(turns.length - 1), cy: dots, r: dot + 4 }));
    if (height > 150 && latest.tokens_before > budgetOf(latest)) {
      const over = isWide ? `, ${times(latest.tokens_before / (latest.window_tokens ?? budgetOf(latest)))} times the window` : "";
      const words = latest.troubled > 1 ? `failed at turn ${turns.length}${over}` : `${direct && isWide ? "through the proxy: " : ""}answered at turn ${turns.length}${over}`;
      write(words, Math.max(end, left + (isWide ? 300 : 130)), y(latest.tokens_before / budgetOf(latest)) - 9, latest.troubled > 1 ? "words bad-words" : "words good-words", "end");
    }
  }
  const every = [1, 5, 10, 25, 50, 100, 250].find((one) => one * step >= 34) ?? 500;
  for (let turn = every === 1 ? 1 : every; turn <= count; turn += every) write(turn, middle(turn - 1), dots + 22, "tick", "middle");
  const tall = dots + 30;
  return { picture: inPicture("svg", { class: "picture", width, height: tall, viewBox: `0 0 ${width} ${tall}`, "aria-hidden": "true" }, ...parts), left, step, tall, top, count: turns.length };
}

// The card ----------------------------------------------------------------------------------------------------------

const several = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);
const times = (share) => (share >= 9.95 ? Math.round(share) : Number(share.toFixed(1)));

/** What the latest turn says is gone: results by their tools, other messages, and whether all can be read. */
function lossOf(blocks) {
  const gone = blocks.filter((block) => block.reasons.length && !block.tokens_after);
  const cut = blocks.filter((block) => block.tool && block.tokens_after && block.tokens_after < block.tokens_before && block.artifacts.length);
  const tools = new Map();
  for (const { tool } of [...gone, ...cut]) if (tool) tools.set(tool, (tools.get(tool) ?? 0) + 1);
  const names = [...tools].sort((one, other) => other[1] - one[1]).map(([name]) => name);
  return { results: gone.filter((block) => block.tool).length, cut: cut.length, names, unkept: gone.filter((block) => !block.artifacts.length).length };
}

function lossInWords({ results, cut, names, unkept }, files) {
  if (!results && !cut) return ["nothing", "every message was sent"];
  const of = names.length ? `of ${several(names.length > 4 ? [...names.slice(0, 3), "others"] : names)}` : "";
  const parts = results ? [of, ...(cut ? [`${whole.format(cut)} shortened`] : [])] : [`shortened, ${of}`];
  if (files?.length) parts.push(`(${several(files.length > 4 ? [...files.slice(0, 4), `${files.length - 4} more`] : files)})`);
  return [counted(results || cut, "result"), `${parts.filter(Boolean).join(", ")}; ${unkept ? `${whole.format(unkept)} not kept` : "all readable"}`];
}

function turnInWords(turns, place) {
  const [turn, before] = [turns[place], turns[place - 1]];
  const words = `Turn ${place + 1}: ${counted(turn.tokens_before, "token")} from the agent, ${whole.format(turn.tokens_after)} for the model`;
  const cut = isCut(turn, before) ? `; ${whole.format(lostBy(turn) - (before ? lostBy(before) : 0))} more are cut` : "";
  return `${words}${cut}${turn.troubled > 1 ? "; it failed" : turn.troubled ? "; sent twice" : ""}.`;
}

const titleOf = (one) => one.session || [one.client, one.tool].filter(Boolean).join(" · ") || one.model || "A conversation";

function showStory() {
  const place = byId("story");
  const { of: one } = story;
  const isLarge = selected.conversation !== "" && selected.view === "requests";
  document.body.classList.toggle("one-conversation", isLarge);
  place.hidden = !one || selected.view !== "requests";
  if (place.hidden) return;
  const turns = one.turns.filter(isSized);
  const latest = turns.at(-1);
  byId("story-title").textContent = titleOf(one);
  const folder = story.folder ? `in ${story.folder}` : "";
  byId("story-who").textContent = [one.session && one.client, folder, one.model, `began ${atTime(one.began, !isToday(one.began))}`,
    counted(one.requests, "turn"), story.runs ? "a turn is under way" : ""].filter(Boolean).join(" · ");
  byId("story-open").textContent = isLarge ? "All requests" : "Open";
  byId("story-open").setAttribute("aria-label", isLarge ? "All requests" : `Open the conversation ${titleOf(one)}`);
  const facts = [];
  if (latest) {
    const size = latest.window_tokens ?? budgetOf(latest);
    const over = latest.tokens_before / size;
    facts.push(["Sent by the agent", `${short.format(latest.tokens_before)} tokens`, over > 1 ? `${times(over)} times the window of ${whole.format(size)}` : `${percent.format(over)} of the window`],
      ["Seen by the model", `${short.format(latest.tokens_after)} tokens`, `${percent.format(latest.tokens_after / budgetOf(latest))} of its prompt budget`],
      ["Lost so far", ...lossInWords(lossOf(story.blocks), story.files)],
      ["Saved", one.fitted ? counted(one.fitted, "request") : "nothing yet", one.fitted ? `too long for the window, yet answered; ${short.format(one.tokens_saved)} tokens saved` : "no request was too long"]);
  }
  byId("story-facts").replaceChildren(...facts.map(([name, value, more]) =>
    element("div", "", element("dt", "", name), element("dd", "", value), element("dd", "more", more))));
  drawStory(turns, isLarge);
  byId("turn").hidden = !isLarge;
}

function drawStory(turns, isLarge) {
  const place = byId("strip");
  const direct = isLarge ? Math.min(Number(selected.direct) || 0, TURNS) : 0;
  const drawn = pictureOf(turns, { width: Math.max(280, place.clientWidth), height: isLarge ? 236 : 92, direct, runs: story.runs });
  place.querySelector("svg")?.remove();
  place.prepend(drawn.picture);
  const range = byId("turn-range");
  range.hidden = !turns.length;
  range.max = Math.max(1, turns.length);
  range.value = story.turn || turns.length;
  range.style.left = `${drawn.left}px`;
  range.style.width = `${drawn.step * Math.max(1, drawn.count)}px`;
  range.style.height = `${drawn.tall}px`;
  range.style.setProperty("--step", `${drawn.step}px`);
  story.drawn = drawn;
  pointAt(story.turn || turns.length);
}

/** Say what a turn did, and mark it in the picture. */
function pointAt(number) {
  const turns = story.of.turns.filter(isSized);
  const words = turns[number - 1] ? turnInWords(turns, number - 1) : "No turn could be read yet.";
  byId("turn-words").textContent = words;
  byId("turn-range").setAttribute("aria-valuetext", words);
  const { picture, left, step, tall, top } = story.drawn;
  picture.querySelector(".pointed")?.remove();
  if (turns[number - 1]) picture.append(inPicture("rect", { class: "pointed", x: left + (number - 1) * step, y: top - 8, width: step, height: tall - top - 12, rx: 3 }));
}

// Asking ------------------------------------------------------------------------------------------------------------

/** Load the conversation that is chosen, or the latest one. */
async function askStory() {
  const name = selected.conversation;
  story.seen = 0;
  const { conversations } = await ask(`conversations?${new URLSearchParams({ limit: 1, turns: TURNS, conversation: name })}`);
  if (name !== selected.conversation) return;
  const [found] = conversations;
  if (found && !name && selected.direct) return narrow({ conversation: found.conversation });
  if (!found || found.conversation !== story.of?.conversation) Object.assign(story, { blocks: [], turn: 0, files: null, folder: "" });
  story.of = found ?? null;
  if (found) story.seen = Date.now();
  showStory();
  return askLoss();
}

/** What is lost, by the latest turn; asked again only when that is more than it was. */
async function askLoss() {
  const latest = story.of?.turns.filter(isSized).at(-1);
  if (!latest || story.asked === latest.request_id) return;
  story.asked = latest.request_id;
  if (latest.changed) {
    const { blocks } = await askOne(latest.request_id);
    if (story.asked !== latest.request_id) return;
    story.blocks = blocks;
  } else story.blocks = [];
  showStory();
}

/** Requests that have ended or are under way, as they come with an event. */
function storyTakes({ decisions, running }) {
  const one = story.of;
  const mine = decisions.filter((each) => each.conversation && each.conversation === one?.conversation).reverse();
  const isFree = selected.conversation === "" && Date.now() - story.seen > STAYS_MILLISECONDS;
  if (!mine.length && decisions.some((each) => each.conversation && (!one || isFree))) return void askStory().catch(lost);
  const runs = running.some((each) => each.conversation && each.conversation === one?.conversation);
  if (!one || (!mine.length && runs === story.runs)) return undefined;
  story.runs = runs;
  if (runs || mine.length) story.seen = Date.now();
  for (const each of mine) {
    if (one.turns.some((turn) => turn.request_id === each.request_id)) continue;
    const troubled = each.outcome !== "answered" || each.warning ? 2 : Number(each.attempts > 1);
    one.turns.push({ ...each, room_tokens: each.room_tokens ?? null, changed: Number(isChanged(each)), troubled });
    one.requests += 1;
    one.fitted += Number(each.fitted ?? 0);
    one.tokens_saved += each.tokens_saved ?? 0;
  }
  showStory();
  return askLoss().catch(lost);
}

byId("story-open").addEventListener("click", () => narrow({ view: "requests", conversation: selected.conversation ? "" : story.of.conversation,
  show: "all", q: "", model: "", client: "", status: "", direct: "" }));
byId("turn-range").addEventListener("input", () => pointAt(Number(byId("turn-range").value)));
byId("turn-range").addEventListener("pointermove", (event) => {
  const { step, count } = story.drawn;
  pointAt(Math.max(1, Math.min(count, Math.floor(event.offsetX / step) + 1)));
});
byId("turn-range").addEventListener("pointerleave", () => pointAt(Number(byId("turn-range").value)));
new ResizeObserver(() => {
  if (story.of && !byId("story").hidden) showStory();
}).observe(byId("strip"));
