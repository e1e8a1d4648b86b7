// Elements are made here and only here; foreign text becomes text nodes, so it can never become markup.

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false).map((c) => (c instanceof Node ? c : String(c))));
  return node;
}

export const $ = (id) => document.getElementById(id);

export function ago(ms, now = Date.now()) {
  if (!ms) return "never";
  return `${span(Math.max(0, now - ms))} ago`;
}

export function span(ms) {
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m`;
  if (s < 172800) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86400)}d`;
}

export function clock(ms) { return new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }); }

export function when(ms) {
  if (!ms) return "–";
  const left = ms - Date.now();
  return left > 0 && left < 86400000 ? `${clock(ms)} (in ${span(left)})` : clock(ms);
}

// prose shows text with its code blocks set apart; everything stays text.
export function prose(text) {
  const parts = text.split("```");
  return parts.map((part, i) => {
    if (i % 2 === 0) return part ? el("span", {}, part.replace(/^\n|\n$/g, "")) : null;
    const [, , code] = /^([\w+-]*\n)?([\s\S]*)$/.exec(part);
    return el("pre", {}, el("code", {}, code.replace(/\n$/, "")));
  }).filter(Boolean);
}

export const textOf = (message) => (message?.content ?? []).map((p) => p.text ?? "").join("");

export function pill(kind, text) { return el("span", { class: `pill ${kind}` }, text); }

// slots is a bar that is filled as far as slots are used. Its width is an attribute, because the policy of the page takes no inline style.
export function slots(used, all) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ height: 12, rx: 6, width: `${all > 0 ? Math.min(100, (100 * used) / all) : 0}%` })) rect.setAttribute(name, value);
  for (const [name, value] of Object.entries({ class: "slots", role: "img", "aria-label": `${used} of ${all} slots used` })) svg.setAttribute(name, value);
  svg.append(rect);
  return svg;
}
