(() => {
  const root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const wear = (theme) => { root.dataset.theme = theme; };
  wear(preferred.matches ? "dark" : "light");
  preferred.addEventListener("change", () => wear(preferred.matches ? "dark" : "light"));
  document.querySelector("button.theme").addEventListener("click", () => wear(root.dataset.theme === "dark" ? "light" : "dark"));

  const source = document.getElementById("items");
  const map = document.querySelector("svg.map");
  if (!source || !map) return;

  const items = JSON.parse(source.textContent);
  const panel = document.querySelector(".panel");
  const dots = [...map.querySelectorAll(".item")];
  const names = [...map.querySelectorAll(".name")];

  // Names stand beside their dots, the most popular first, each at the first of four places that is free, else nowhere.
  // The first few may cover other dots, so that what everyone looks for is there.
  const ALWAYS_NAMED = 15;
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const circles = dots.map((dot) => ["cx", "cy", "r"].map((key) => Number(dot.getAttribute(key))));
  const covered = circles.map(([x, y, r]) => ({ left: x - 0.6 * r, right: x + 0.6 * r, top: y - 0.6 * r, bottom: y + 0.6 * r }));
  const settle = () => {
    names.forEach((name) => { name.style.display = ""; });
    const sizes = names.map((name) => name.getBBox());
    const { width, height } = map.viewBox.baseVal;
    const taken = [];
    names.forEach((name, rank) => {
      const [x, y, r] = circles[rank];
      const { width: wide, height: high } = sizes[rank];
      const others = rank < ALWAYS_NAMED ? taken : [...taken, ...covered.filter((_, number) => number !== rank)];
      const places = [[x + r + 3, y], [x - r - 3 - wide, y], [x - wide / 2, y - r - 2 - high / 2], [x - wide / 2, y + r + 2 + high / 2]];
      const place = places.find(([left, middle]) => {
        const box = { left: left - 2, right: left + wide + 2, top: middle - high / 2, bottom: middle + high / 2 };
        const free = box.left > 0 && box.right < width && box.top > 0 && box.bottom < height && !others.some((other) => meet(box, other));
        if (free) taken.push(box);
        return free;
      });
      if (place) {
        name.setAttribute("x", place[0]);
        name.setAttribute("y", place[1] + 0.3 * high);
      } else name.style.display = "none";
    });
  };
  settle();
  addEventListener("resize", settle);

  const line = (name, strength) => {
    const entry = document.createElement("li");
    for (const words of [name, strength]) {
      const part = document.createElement("span");
      part.textContent = words;
      entry.append(part);
    }
    return entry;
  };
  const show = (number, pin) => {
    const item = items[number];
    panel.querySelector(".title").textContent = item.name;
    panel.querySelector(".sub").textContent = `in ${item.share} of the baskets`;
    for (const kind of ["substitutes", "complements"]) {
      const found = item[kind].length ? item[kind] : [["none found", ""]];
      panel.querySelector(`.${kind}`).replaceChildren(...found.map(([name, x]) => line(name, x)));
    }
    map.classList.toggle("picked", pin);
    dots.forEach((dot, key) => {
      dot.classList.toggle("chosen", key === number);
      dot.classList.toggle("near", item.near.includes(key));
    });
  };
  dots.forEach((dot, number) => {
    dot.addEventListener("mouseenter", () => show(number, true));
    dot.addEventListener("focus", () => show(number, true));
    dot.addEventListener("mouseleave", () => map.classList.remove("picked"));
    dot.addEventListener("blur", () => map.classList.remove("picked"));
  });
  show(0, false);
})();
