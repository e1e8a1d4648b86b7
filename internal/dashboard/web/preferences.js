// What a person chose for this browser: one key, and nothing else is stored there.

import { effect, signal } from "./ui/html.js";

const KEY = "laneway.preferences";

function read() {
  try { return JSON.parse(localStorage.getItem(KEY)) ?? {}; } catch { return {}; }
}

export const theme = signal(["light", "dark"].includes(read().theme) ? read().theme : "system");

export const nextTheme = () => { theme.value = { system: "light", light: "dark", dark: "system" }[theme.value]; };

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  if (theme.value === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, JSON.stringify({ theme: theme.value }));
});
