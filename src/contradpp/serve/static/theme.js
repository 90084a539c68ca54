// Light, dark, or as the system says: set before the page is painted, kept in the browser.
(() => {
  const ICONS = { auto: "◐", light: "☀", dark: "☾" };
  const SAID = { auto: "as the system", light: "light", dark: "dark" };
  const kept = () => {
    try { return localStorage.getItem("contradpp-theme") ?? "auto"; } catch { return "auto"; }
  };
  let theme = kept() in ICONS ? kept() : "auto";

  const apply = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (!button) return;
    button.textContent = ICONS[theme];
    button.setAttribute("aria-label", `Colors: ${SAID[theme]}`);
    button.title = `Colors: ${SAID[theme]}`;
  };

  apply();
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      const order = Object.keys(ICONS);
      theme = order[(order.indexOf(theme) + 1) % order.length];
      try { localStorage.setItem("contradpp-theme", theme); } catch { /* a private window: not kept */ }
      apply();
    });
  });
})();
