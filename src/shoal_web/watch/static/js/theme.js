// Light, dark, or as the system has it. The browser keeps the choice.

import { repaint } from "./charts.js";

const THEMES = ["auto", "light", "dark"];

/** `button`: names the theme, and goes on to the next one. */
export function themes(button) {
  const set = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = "Theme: " + name;
    try { localStorage.setItem("shoal-theme", name); } catch { /* a browser that keeps nothing */ }
    repaint();
  };
  let kept = "auto";
  try { kept = localStorage.getItem("shoal-theme") ?? "auto"; } catch { /* as above */ }
  set(THEMES.includes(kept) ? kept : "auto");
  button.addEventListener("click", () => set(THEMES[(THEMES.indexOf(button.textContent.slice(7)) + 1) % 3]));
}
