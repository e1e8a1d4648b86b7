// The preferences of a person in this browser. All are in one key; nothing else is stored there.

import { effect, signal } from "./ui/html.js";

const KEY = "laneway.preferences";

function read() {
  try { return JSON.parse(localStorage.getItem(KEY) ?? "{}"); } catch { return {}; }
}

export const theme = signal(/** @type {"system" | "light" | "dark"} */ (["light", "dark"].includes(read().theme) ? read().theme : "system"));

export const nextTheme = () => { theme.value = theme.value === "system" ? "light" : theme.value === "light" ? "dark" : "system"; };

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  if (theme.value === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, JSON.stringify({ theme: theme.value }));
});
