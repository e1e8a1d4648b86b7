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

// clocks are moments of a list: with seconds when two of them would look equal.
export function clocks(list) {
  const texts = list.map(clock);
  if (new Set(texts).size === new Set(list).size) return texts;
  return list.map((ms) => new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" }));
}

export function when(ms) {
  if (!ms) return "–";
  const left = ms - Date.now();
  return left > 0 && left < 86400000 ? `${clock(ms)} (in ${span(left)})` : clock(ms);
}

// prose shows Markdown: code blocks, headings, lists, quotations, bold, italic and code. Everything is set as text; only addresses of the web become links.
export function prose(text) {
  const parts = text.split("```");
  return parts.flatMap((part, i) => {
    if (i % 2 === 0) return part ? blocks(part.replace(/^\n|\n$/g, "")) : [];
    const [, , code] = /^([\w+-]*\n)?([\s\S]*)$/.exec(part);
    return [el("pre", {}, el("code", {}, code.replace(/\n$/, "")))];
  });
}

const LINES = [
  [/^#{1,6} +(.*)$/, "h4"], [/^ *[-*+] +(.*)$/, "ul"], [/^ *\d{1,9}[.)] +(.*)$/, "ol"], [/^> ?(.*)$/, "blockquote"],
];

// blocks groups lines of one kind.
function blocks(text) {
  const out = [];
  let kind = "", group = [];
  const close = () => {
    if (kind === "ul" || kind === "ol") out.push(el(kind, {}, ...group.map((l) => el("li", {}, ...inline(l)))));
    else if (kind) out.push(...(kind === "h4" ? group.map((l) => el("h4", {}, ...inline(l))) : [el(kind, {}, ...inline(group.join("\n")))]));
    group = [];
  };
  for (const line of text.split("\n")) {
    const [match, now] = LINES.map(([pattern, tag]) => [pattern.exec(line), tag]).find(([m]) => m) ?? [null, "span"];
    if (now !== kind) { close(); kind = now; }
    group.push(match ? match[1] : line);
  }
  close();
  return out;
}

const MARKS = /`([^`\n]+)`|\*\*(?=\S)([^*\n]+?)(?<=\S)\*\*|(?<![\w*])\*(?=\S)([^*\n]+?)(?<=\S)\*(?![\w*])|\[([^\]\n]{1,300})\]\((https?:\/\/[^\s()]{1,2000})\)/g;

function inline(text) {
  const out = [];
  let from = 0;
  for (const m of text.matchAll(MARKS)) {
    out.push(text.slice(from, m.index));
    if (m[1]) out.push(el("code", {}, m[1]));
    else if (m[2]) out.push(el("strong", {}, m[2]));
    else if (m[3]) out.push(el("em", {}, m[3]));
    else out.push(el("a", { href: m[5], title: m[5], rel: "noopener noreferrer nofollow", target: "_blank" }, m[4]));
    from = m.index + m[0].length;
  }
  return [...out, text.slice(from)].filter((p) => p !== "");
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
