// The page: a basket, what the model suggests for it, and what people think of that.

import { Refused, get, onAlive, post, setToken } from "./api.js";
import { CatalogueMap, key } from "./map.js";
import { setUpSearch } from "./search.js";

const SUGGESTIONS = 10;
const SURPRISES = 4; // items that a surprise adds
const HEARTBEAT = 5000;
const RETRY = 1500;

const $ = (id) => document.getElementById(id);
const state = {
  basket: [], rejected: [], suggestions: [], surprise: [], model: null, alive: true, asking: null,
  variety: null, // until someone moves the slider: the model's default
  specific: 0, // rank_by: 0 for the most likely items, 1 for the most specific ones
};
const map = new CatalogueMap($("map"), (point) => toggle(point));

// -- The basket -----------------------------------------------------------------------------------

const inBasket = (entry) => state.basket.some((other) => key(other.item) === key(entry.item));

function add(...entries) {
  const fresh = entries.filter((entry) => !inBasket(entry)).map(({ item, name }) => ({ item, name }));
  if (!fresh.length) return;
  state.basket = [...state.basket, ...fresh];
  state.rejected = state.rejected.filter((entry) => !inBasket(entry));
  say(`${fresh.map((entry) => entry.name).join(", ")} added`);
  changed();
}

function remove(entry) {
  state.basket = state.basket.filter((other) => key(other.item) !== key(entry.item));
  say(`${entry.name} removed`);
  changed();
}

const toggle = (entry) => (inBasket(entry) ? remove(entry) : add(entry));

function changed() {
  showBasket();
  closeSurprise();
  void suggest();
}

function showBasket() {
  $("chips").replaceChildren(...state.basket.map(chip));
  $("basket-empty").hidden = state.basket.length > 0;
  $("clear").hidden = state.basket.length === 0;
  const n = state.basket.length;
  $("basket-count").textContent = n === 0 ? "" : n === 1 ? "1 item" : `${n} items`;
}

function chip(entry) {
  const button = element("button", "chip-remove", "×");
  button.type = "button";
  button.setAttribute("aria-label", `Remove ${entry.name}`);
  button.addEventListener("click", () => {
    remove(entry);
    ($("chips").querySelector("button") ?? $("search")).focus();
  });
  const row = element("li", "chip");
  row.append(element("span", "", entry.name), button);
  return row;
}

// -- Suggestions ----------------------------------------------------------------------------------

async function suggest() {
  state.asking?.abort();
  state.asking = new AbortController();
  const { signal } = state.asking;
  $("suggestions").setAttribute("aria-busy", "true");
  try {
    const { results: [answer] } = await post("/v1/slate", {
      basket: ids(state.basket), n: SUGGESTIONS, diversity: state.variety, rank_by: state.specific,
      exclude: ids(state.rejected), why: true, history: earlier(),
    }, signal);
    if (signal.aborted) return;
    // Variety decides what is on the list; on it, the likeliest stands first, unless the most specific are asked for.
    state.suggestions = answer.suggestions;
    if (!state.specific) state.suggestions.sort((a, b) => b.probability - a.probability);
    showSuggestions(answer);
    $("history-note").textContent = answer.unknown.length ? `Not known here: ${answer.unknown.join(", ")}.` : "";
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Refused) showSuggestions({ suggestions: [], problem: error.message });
  } finally {
    if (!signal.aborted) $("suggestions").removeAttribute("aria-busy");
  }
  void showMap();
}

// The orders that were bought before, or nothing.
function earlier() {
  const orders = $("history").value.split("\n").map((line) => line.split(",").map((word) => word.trim()).filter(Boolean));
  const filled = orders.filter((order) => order.length > 0);
  return filled.length ? filled : null;
}

function showSuggestions({ suggestions, problem }) {
  const most = Math.max(...suggestions.map((one) => one.probability), 1e-12);
  const focused = [...$("suggestions").querySelectorAll("button")].indexOf(document.activeElement);
  $("suggestions").replaceChildren(...suggestions.map((one) => suggestionRow(one, most)));
  if (focused >= 0) $("suggestions").querySelectorAll("button")[focused]?.focus({ preventScroll: true });
  $("suggestions-empty").hidden = suggestions.length > 0;
  $("suggestions-empty").textContent = suggestions.length ? "" : friendly(problem);
  $("suggestions-note").textContent = suggestions.length ? "chance to come next" : "";
  $("rejected-line").hidden = state.rejected.length === 0;
  $("rejected-text").textContent = `Turned down: ${state.rejected.map((entry) => entry.name).join(", ")}.`;
}

function suggestionRow(one, most) {
  const row = element("li", "suggestion");
  const bar = element("span", "bar");
  bar.style.setProperty("--share", String(one.probability / most));
  const accept = action("accept", "✓", `Accept ${one.name}`, () => sendFeedback("accepted", one));
  const reject = action("reject", "×", `Reject ${one.name}`, () => sendFeedback("rejected", one));
  const text = element("span", "suggestion-text");
  text.append(element("span", "suggestion-name", one.name));
  const why = reason(one);
  if (why) text.append(element("span", "suggestion-why", why));
  row.append(bar, text, element("span", "probability", percent(one.probability)), accept, reject);
  return row;
}

// The items of the basket that speak for a suggestion by a tenth of a nat or more, two at most. The
// only item of a basket is the reason for everything; how much likelier it makes something says more.
function reason({ because, popular, bought, lift }) {
  const names = (because ?? []).filter((one) => one.nats >= 0.1).slice(0, 2).map((one) => one.name);
  if (state.basket.length === 1 && lift) {
    return [`${lift.toFixed(1)} times its usual share`, popular ? "popular" : ""].filter(Boolean).join("; ");
  }
  const times = bought ? `bought in ${bought} of the orders before` : "";
  return [names.length ? `because of ${names.join(" and ")}` : "", times, popular ? "popular" : ""].filter(Boolean).join("; ");
}

function action(kind, sign, label, act) {
  const button = element("button", `act ${kind}`, sign);
  button.type = "button";
  button.title = button.ariaLabel = label;
  button.addEventListener("click", act);
  return button;
}

const friendly = (problem) =>
  problem ? `Nothing more can be added: ${problem}.`.replace("..", ".") : "Nothing is left to suggest.";

// -- What people think of them --------------------------------------------------------------------

function sendFeedback(outcome, one) {
  // The list stands until the next one comes: a second click on it says nothing new.
  if (inBasket(one) || state.rejected.some((other) => key(other.item) === key(one.item))) return;
  const event = { outcome, basket: ids(state.basket), items: [one.item], id: newId() };
  if (outcome === "accepted") {
    add(one);
  } else {
    state.rejected = [...state.rejected, { item: one.item, name: one.name }];
    say(`${one.name} turned down`);
    void suggest();
  }
  if (state.model?.feedback !== false) void send(event, one.name);
}

async function send(event, name) {
  try {
    await post("/v1/feedback", event);
    toast(event.outcome === "accepted" ? `Noted: ${name} fits.` : `Noted: ${name} does not fit.`);
  } catch (error) {
    if (error instanceof Refused && error.status === 401) askForToken(() => send(event, name));
    else toast(error instanceof Refused ? `Not stored: ${error.message}.` : "Not stored: the server does not answer.", true);
  }
}

function askForToken(again) {
  const dialog = $("token-dialog");
  if (dialog.open) return;
  $("token").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "ok" || !$("token").value) return;
    setToken($("token").value.trim());
    void again();
  }, { once: true });
}

// -- Surprise -------------------------------------------------------------------------------------

async function surprise() {
  try {
    const answer = await post("/v1/sample", { given: ids(state.basket), size: state.basket.length + SURPRISES });
    state.surprise = (answer.results[0] ?? []).filter((entry) => !inBasket(entry));
    $("surprise-items").replaceChildren(...state.surprise.map((entry) => {
      const row = element("li", "chip surprising");
      row.append(element("span", "", entry.name));
      return row;
    }));
    const found = state.surprise.length > 0;
    $("surprise-title").textContent = found
      ? (state.basket.length ? "Someone with your basket might also have:" : "Someone might have:")
      : friendly(answer.problem);
    $("surprise-take").hidden = !found;
    $("surprise-card").hidden = false;
  } catch (error) {
    if (error instanceof Refused) toast(error.message, true);
  }
}

function closeSurprise() {
  $("surprise-card").hidden = true;
  state.surprise = [];
}

// -- The map, the model, the server ---------------------------------------------------------------

async function showMap() {
  try {
    await map.show(ids(state.basket), ids(state.suggestions));
  } catch { /* the next look tries again */ }
}

async function lookAtModel() {
  const found = await get("/v1/model");
  const before = state.model;
  state.model = found;
  $("history-box").hidden = !found.history;
  $("model-line").textContent = `${found.n_items.toLocaleString("en")} items`;
  $("model-line").append(element("span", "model-class", ` · ${found.model}`));
  if (state.variety === null) {
    $("variety").value = String(100 * found.diversity);
    showVariety();
  }
  if (before && before.version !== found.version) {
    toast("A new model has taken over.");
    map.forget();
    void suggest();
  }
}

async function heartbeat() {
  try {
    if (!document.hidden || !state.alive) await lookAtModel();
  } catch { /* `onAlive` handles it */ }
  setTimeout(heartbeat, state.alive ? HEARTBEAT : RETRY);
}

onAlive((now) => {
  state.alive = now;
  $("gone").hidden = now;
  document.body.classList.toggle("is-gone", !now);
  if (now) {
    toast("The server is back.");
    void suggest();
  } else {
    setTimeout(() => lookAtModel().catch(() => {}), RETRY);
  }
});

// -- Small helpers --------------------------------------------------------------------------------

const ids = (entries) => entries.map((entry) => entry.item);
const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");
const say = (text) => { $("say").textContent = text; };

function percent(share) {
  const value = 100 * share;
  return value >= 10 ? `${value.toFixed(0)} %` : value >= 0.1 ? `${value.toFixed(1)} %` : "< 0.1 %";
}

function element(tag, className, text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function toast(text, bad = false) {
  [...$("toasts").children].filter((one) => one.textContent === text).forEach((one) => one.remove());
  const made = element("p", bad ? "toast bad" : "toast", text);
  $("toasts").append(made);
  while ($("toasts").children.length > 3) $("toasts").firstChild.remove();
  setTimeout(() => made.remove(), bad ? 7000 : 3200);
}

function showVariety() {
  const value = Number($("variety").value);
  const text = value === 0 ? "more of the same" : value === 100 ? "variety only" : `${value} of 100`;
  $("variety").setAttribute("aria-valuetext", state.variety === null ? `the model's own, ${value} of 100` : text);
  $("variety").style.setProperty("--at", `${value}%`);
  $("specific").style.setProperty("--at", `${100 * state.specific}%`);
}

// -- Start ----------------------------------------------------------------------------------------

setUpSearch({
  choose: add,
  isChosen: inBasket,
  removeLast: () => state.basket.length && remove(state.basket.at(-1)),
});
let sliding = 0;
function slid() {
  showVariety();
  clearTimeout(sliding);
  sliding = setTimeout(suggest, 60);
}
$("variety").addEventListener("input", () => {
  state.variety = Number($("variety").value) / 100;
  slid();
});
$("specific").addEventListener("input", () => {
  state.specific = Number($("specific").value) / 100;
  slid();
});
$("history").addEventListener("change", suggest);
$("clear").addEventListener("click", () => {
  state.basket = [];
  state.rejected = [];
  changed();
  $("search").focus();
});
$("rejected-undo").addEventListener("click", () => {
  state.rejected = [];
  void suggest();
});
$("surprise").addEventListener("click", surprise);
$("surprise-again").addEventListener("click", surprise);
$("surprise-close").addEventListener("click", () => {
  closeSurprise();
  $("surprise").focus();
});
$("surprise-take").addEventListener("click", () => add(...state.surprise));
showVariety();
showBasket();
void suggest();
void heartbeat();
