// The search box: a combobox over /v1/items that works with arrows, Enter, Escape and Backspace.

import { get } from "./api.js";

const WAIT = 90; // milliseconds between the last key and the question
const SHOWN = 8;

export function setUpSearch({ choose, removeLast, isChosen }) {
  const input = document.getElementById("search");
  const list = document.getElementById("hits");
  const none = document.getElementById("no-hits");
  let hits = [];
  let active = -1;
  let timer = 0;
  let asking = null;
  let stale = true; // whether the words have changed since the hits came

  const close = () => {
    list.hidden = none.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };

  const mark = (position) => {
    active = position;
    [...list.children].forEach((row, at) => row.setAttribute("aria-selected", String(at === active)));
    if (active < 0) return;
    input.setAttribute("aria-activedescendant", `hit-${active}`);
    list.children[active].scrollIntoView({ block: "nearest" });
  };

  const take = (hit) => {
    choose(hit);
    input.value = "";
    hits = [];
    close();
    input.focus();
  };

  const show = () => {
    list.replaceChildren(...hits.map((hit, at) => row(hit, at)));
    list.hidden = hits.length === 0;
    none.hidden = hits.length > 0;
    none.textContent = hits.length ? "" : `Nothing in the catalogue matches “${input.value.trim()}”.`;
    input.setAttribute("aria-expanded", String(hits.length > 0));
    mark(hits.length && input.value.trim() ? 0 : -1);
  };

  const row = (hit, at) => {
    const element = document.createElement("li");
    element.id = `hit-${at}`;
    element.role = "option";
    element.append(...emphasised(hit.name, input.value.trim()));
    if (String(hit.item) !== hit.name) element.append(small(String(hit.item)));
    if (isChosen(hit)) element.append(small("in the basket"));
    element.addEventListener("pointerdown", (event) => event.preventDefault()); // keeps the focus in the box
    element.addEventListener("click", () => take(hit));
    element.addEventListener("pointermove", () => active !== at && mark(at));
    return element;
  };

  const search = async () => {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    const query = new URLSearchParams({ query: input.value.trim(), limit: String(SHOWN) });
    try {
      hits = (await get(`/v1/items?${query}`, signal)).items;
      stale = false;
      if (!signal.aborted && document.activeElement === input) show();
    } catch {
      if (!signal.aborted) close();
    }
  };

  const soon = () => {
    stale = true;
    clearTimeout(timer);
    timer = setTimeout(search, WAIT);
  };

  // Enter before the answer has come must take what the words say now, not what they said before.
  const takeBest = async () => {
    clearTimeout(timer);
    if (stale) await search();
    if (hits.length && (active >= 0 || input.value.trim())) take(hits[Math.max(active, 0)]);
  };

  input.addEventListener("input", soon);
  input.addEventListener("focus", soon);
  input.addEventListener("click", () => list.hidden && soon());
  input.addEventListener("blur", () => {
    clearTimeout(timer);
    asking?.abort();
    close();
  });
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) return void search();
      const step = event.key === "ArrowDown" ? 1 : -1;
      mark((active + step + hits.length) % hits.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      void takeBest();
    } else if (event.key === "Escape") {
      close();
    } else if (event.key === "Backspace" && input.value === "") {
      removeLast();
    }
  });
}

function emphasised(text, wanted) {
  const at = wanted ? text.toLowerCase().indexOf(wanted.toLowerCase()) : -1;
  if (at < 0) return [span(text)];
  const mark = document.createElement("mark");
  mark.textContent = text.slice(at, at + wanted.length);
  const whole = document.createElement("span");
  whole.append(text.slice(0, at), mark, text.slice(at + wanted.length));
  return [whole];
}

function span(text) {
  const element = document.createElement("span");
  element.textContent = text;
  return element;
}

function small(text) {
  const element = span(text);
  element.className = "aside";
  return element;
}
