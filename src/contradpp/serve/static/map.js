// The map of the catalogue: an SVG of points, with the basket and the suggestions named on it.

import { get } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 640;
const HEIGHT = 520;
const EDGE = 26;

export const key = (item) => JSON.stringify(item);

export class CatalogueMap {
  constructor(box, choose) {
    this.box = box;
    this.choose = choose;
    this.points = new Map();
    this.requested = new Set();
    this.svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "Map of the catalogue" });
    this.dots = make("g", {});
    this.names = make("g", { class: "names", "aria-hidden": "true" });
    this.svg.append(this.dots, this.names);
    this.box.append(this.svg);
  }

  // Points that the map does not have yet, such as rare items of the basket, are requested.
  async show(basket, suggested) {
    const wanted = [...basket, ...suggested].filter((item) => !this.points.has(key(item)) && !this.requested.has(key(item)));
    if (wanted.length || this.points.size === 0) {
      wanted.forEach((item) => this.requested.add(key(item)));
      const query = new URLSearchParams(wanted.slice(0, 100).map((item) => ["items", String(item)]));
      const answer = await get(`/v1/map?${query}`);
      this.add(answer.points);
    }
    this.highlight(new Set(basket.map(key)), new Set(suggested.map(key)));
  }

  forget() {
    this.points.clear();
    this.requested.clear();
    this.dots.replaceChildren();
  }

  add(points) {
    for (const point of points) {
      if (this.points.has(key(point.item))) continue;
      const dot = make("circle", {
        cx: place(point.x, WIDTH), cy: place(point.y, HEIGHT), r: radius(point),
      });
      const title = make("title", {});
      title.textContent = point.name;
      dot.append(title);
      dot.addEventListener("click", () => this.choose(point));
      dot.addEventListener("pointerenter", () => this.hover(point));
      dot.addEventListener("pointerleave", () => this.hover(null));
      this.dots.append(dot);
      this.points.set(key(point.item), { ...point, dot });
    }
  }

  highlight(basket, suggested) {
    this.marked = [];
    for (const [name, point] of this.points) {
      const kind = basket.has(name) ? "in-basket" : suggested.has(name) ? "suggested" : "";
      point.dot.setAttribute("class", kind);
      point.dot.setAttribute("r", kind ? Math.max(radius(point), 5) : radius(point));
      if (kind) {
        this.dots.append(point.dot); // on top
        this.marked.push({ ...point, kind });
      }
    }
    this.marked.sort((a, b) => (a.kind === b.kind ? b.weight - a.weight : a.kind === "in-basket" ? -1 : 1));
    this.label();
  }

  hover(point) {
    this.label(point);
  }

  // Names where there is room: the basket's first, none over another.
  label(hovered = null) {
    const taken = [];
    const letter = 0.54 * parseFloat(getComputedStyle(this.names).fontSize);
    const all = hovered ? [{ ...hovered, kind: "hovered" }, ...(this.marked ?? [])] : (this.marked ?? []);
    const seen = new Set();
    this.names.replaceChildren();
    for (const point of all) {
      if (seen.has(key(point.item))) continue;
      seen.add(key(point.item));
      const text = point.name.length > 26 ? `${point.name.slice(0, 25)}…` : point.name;
      const spot = free(place(point.x, WIDTH), place(point.y, HEIGHT), radius(point), text.length * letter + 6, taken);
      if (!spot) continue;
      taken.push(spot);
      const label = make("text", { x: spot.x + 3, y: spot.y + 12, class: point.kind });
      label.textContent = text;
      this.names.append(label);
    }
  }
}

function free(x, y, r, width, taken) {
  const off = r + 2;
  const places = [[off, -8], [-width - off, -8], [-width / 2, off], [-width / 2, -off - 16], [off, 6], [-width - off, 6]];
  for (const [right, down] of places) {
    const spot = { x: x + right, y: y + down, width, height: 16 };
    const inside = spot.x > 2 && spot.x + width < WIDTH - 2 && spot.y > 2 && spot.y + 16 < HEIGHT - 2;
    if (inside && !taken.some((other) => overlap(spot, other))) return spot;
  }
  return null;
}

const overlap = (a, b) =>
  a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

const radius = (point) => Math.round((2.4 + 14 * Math.sqrt(Math.min(point.weight, 0.5))) * 10) / 10;

const place = (value, length) => Math.round((EDGE + ((value + 1) / 2) * (length - 2 * EDGE)) * 10) / 10;

function make(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
