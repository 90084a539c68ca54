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

  // Names stand where there was room by an estimate of their width: in the reader's font, those that touch go.
  const names = [...map.querySelectorAll(".name")];
  const settle = () => {
    const frame = map.getBoundingClientRect();
    const kept = [];
    names.forEach((name) => { name.style.display = ""; });
    names.map((name) => [name, name.getBoundingClientRect()]).forEach(([name, box]) => {
      const inside = box.left >= frame.left && box.right <= frame.right && box.top >= frame.top && box.bottom <= frame.bottom;
      const meets = (other) => box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
      if (inside && !kept.some(meets)) kept.push(box);
      else name.style.display = "none";
    });
  };
  settle();
  addEventListener("resize", settle);

  const items = JSON.parse(source.textContent);
  const panel = document.querySelector(".panel");
  const dots = new Map([...map.querySelectorAll(".item")].map((dot) => [Number(dot.dataset.item), dot]));

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
    panel.querySelector(".substitutes").replaceChildren(...item.substitutes.map(([name, x]) => line(name, x)));
    panel.querySelector(".complements").replaceChildren(...item.complements.map(([name, x]) => line(name, x)));
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
